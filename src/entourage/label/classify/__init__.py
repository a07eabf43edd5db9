"""From labels to classifiers: networks trained on what a graph found, and their rivals."""

from entourage.label.classify.augmenter import LabelAugmenter
from entourage.label.classify.classifier import ImageClassifier, Predictions
from entourage.label.classify.examples import Examples
from entourage.label.classify.kept import keep_looks
from entourage.label.classify.looks import LiveLooks, LookOptions
from entourage.label.classify.method import Method, MethodOptions
from entourage.label.classify.network import ImageNetwork
from entourage.label.classify.options import PRESETS, AugmentOptions, preset
from entourage.label.classify.rivals import LABELLERS, METHODS

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
