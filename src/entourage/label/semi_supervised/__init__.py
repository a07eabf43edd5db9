"""From labels to classifiers: networks trained on what a graph found, and their rivals."""

from entourage.label.semi_supervised.augmenter import LabelAugmenter
from entourage.label.semi_supervised.baselines import LABELLERS, METHODS
from entourage.label.semi_supervised.classifier import ImageClassifier, Predictions
from entourage.label.semi_supervised.data import Examples
from entourage.label.semi_supervised.method import Method, MethodOptions
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import PRESETS, AugmentOptions, preset
from entourage.label.semi_supervised.views import LiveLooks, LookOptions, keep_looks

__all__ = [
    "LABELLERS",
    "METHODS",
    "PRESETS",
    "AugmentOptions",
    "Examples",
    "ImageClassifier",
    "ImageNetwork",
    "LabelAugmenter",
    "LiveLooks",
    "LookOptions",
    "Method",
    "MethodOptions",
    "Predictions",
    "keep_looks",
    "preset",
]
