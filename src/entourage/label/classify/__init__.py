"""From labels to classifiers: networks trained on what a graph found, and their rivals."""

from entourage.label.classify.augmenter import LabelAugmenter
from entourage.label.classify.classifier import ImageClassifier, Predictions
from entourage.label.classify.options import PRESETS, AugmentOptions, preset

__all__ = ["PRESETS", "AugmentOptions", "ImageClassifier", "LabelAugmenter", "Predictions", "preset"]
