"""Reading what users have (images, features, labels) and writing what they get."""

from entourage.data.device import resolve_device
from entourage.data.features import FeatureTable, read_features
from entourage.data.images import IMAGE_SUFFIXES, UnreadableImageError, list_images, read_image
from entourage.data.labels import read_labels, read_prior
from entourage.data.matching import ItemMatcher
from entourage.data.progress import progress_bar, status
from entourage.data.writing import atomic_path

__all__ = [
    "IMAGE_SUFFIXES",
    "FeatureTable",
    "ItemMatcher",
    "UnreadableImageError",
    "atomic_path",
    "list_images",
    "progress_bar",
    "read_features",
    "read_image",
    "read_labels",
    "read_prior",
    "resolve_device",
    "status",
]
