"""From labels to classifiers: networks trained on what a graph found, and their rivals."""

from entourage.label.semi_supervised.augmenter import LabelAugmenter
from entourage.label.semi_supervised.baselines import LABELLERS, METHODS
from entourage.label.semi_supervised.classifier import ImageClassifier, Predictions
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import MethodOptions, SemiSupervisedMethod
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import PRESETS, AugmentOptions, preset
from entourage.label.semi_supervised.views import LiveViews, ViewOptions, cache_views

__all__ = [
    "LABELLERS",
    "METHODS",
    "PRESETS",
    "AugmentOptions",
    "ImageClassifier",
    "ImageNetwork",
    "LabelAugmenter",
    "LiveViews",
    "MethodOptions",
    "Predictions",
    "SemiSupervisedData",
    "SemiSupervisedMethod",
    "ViewOptions",
    "cache_views",
    "preset",
]
