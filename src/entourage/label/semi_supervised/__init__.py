"""Image classifiers trained on few labels: on the labels of a similarity graph, or with a semi-supervised baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.label.semi_supervised.augmenter import LabelAugmenter
    from entourage.label.semi_supervised.baselines import LABELLERS, METHODS
    from entourage.label.semi_supervised.classifier import ImageClassifier, Predictions
    from entourage.label.semi_supervised.data import SemiSupervisedData
    from entourage.label.semi_supervised.method import MethodOptions, SemiSupervisedMethod
    from entourage.label.semi_supervised.options import AugmentOptions
    from entourage.label.semi_supervised.views import CachedViews, LiveViews, cache_views

__all__ = [
    "LABELLERS",
    "METHODS",
    "AugmentOptions",
    "CachedViews",
    "ImageClassifier",
    "LabelAugmenter",
    "LiveViews",
    "MethodOptions",
    "Predictions",
    "SemiSupervisedData",
    "SemiSupervisedMethod",
    "cache_views",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "augmenter": ("LabelAugmenter",),
        "baselines": ("LABELLERS", "METHODS"),
        "classifier": ("ImageClassifier", "Predictions"),
        "data": ("SemiSupervisedData",),
        "method": ("MethodOptions", "SemiSupervisedMethod"),
        "options": ("AugmentOptions",),
        "views": ("CachedViews", "LiveViews", "cache_views"),
    },
)
