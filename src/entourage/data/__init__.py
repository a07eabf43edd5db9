"""Reading what users have (images, features, labels) and writing what they get."""

from entourage.data.audio import (
    AUDIO_SUFFIXES,
    UnreadableAudioError,
    decode_audio,
    has_audio_name,
    list_audio,
    read_audio,
)
from entourage.data.claims import claimed
from entourage.data.datasets import DATASET_NAMES, find_dataset, read_image_set
from entourage.data.device import resolve_device
from entourage.data.features import FeatureTable, read_features
from entourage.data.files import UnreadableFileError, reason_of
from entourage.data.image_set import ImageSet
from entourage.data.images import IMAGE_SUFFIXES, UnreadableImageError, list_images, read_image
from entourage.data.labels import read_labels, read_prior
from entourage.data.matching import ItemMatcher
from entourage.data.npz import UNREADABLE
from entourage.data.pixels import Pixels, decode_pixels
from entourage.data.progress import is_main_process, is_shown, process_count, progress_bar, status
from entourage.data.sources import ImageSource
from entourage.data.splits import draw_labels, seeded_split
from entourage.data.writing import (
    atomic_path,
    check_output_file,
    check_outputs,
    is_unfinished,
    write_json,
    write_text,
)

__all__ = [
    "AUDIO_SUFFIXES",
    "DATASET_NAMES",
    "IMAGE_SUFFIXES",
    "UNREADABLE",
    "FeatureTable",
    "ImageSet",
    "ImageSource",
    "ItemMatcher",
    "Pixels",
    "UnreadableAudioError",
    "UnreadableFileError",
    "UnreadableImageError",
    "atomic_path",
    "check_output_file",
    "check_outputs",
    "claimed",
    "decode_audio",
    "decode_pixels",
    "draw_labels",
    "find_dataset",
    "has_audio_name",
    "is_main_process",
    "is_shown",
    "is_unfinished",
    "list_audio",
    "list_images",
    "process_count",
    "progress_bar",
    "read_audio",
    "read_features",
    "read_image",
    "read_image_set",
    "read_labels",
    "read_prior",
    "reason_of",
    "resolve_device",
    "seeded_split",
    "status",
    "write_json",
    "write_text",
]
