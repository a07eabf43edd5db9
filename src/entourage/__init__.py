"""Neural networks that use context: the other samples of a data set, of a mini-batch, the other objects on a page."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.cluster.estimator import LearnedClustering
    from entourage.detect.detections import Detections
    from entourage.detect.detector import Detector
    from entourage.embed.losses.group_loss import GroupLoss
    from entourage.embed.metrics import retrieval_metrics
    from entourage.embed.training.sampler import BalancedBatchSampler
    from entourage.label.semi_supervised.augmenter import LabelAugmenter
    from entourage.label.semi_supervised.classifier import ImageClassifier
    from entourage.label.transduction import GraphTransduction
    from entourage.read.reader import ScoreReader

__all__ = [
    "BalancedBatchSampler",
    "Detections",
    "Detector",
    "GraphTransduction",
    "GroupLoss",
    "ImageClassifier",
    "LabelAugmenter",
    "LearnedClustering",
    "ScoreReader",
    "retrieval_metrics",
]

__version__ = "0.2.0"

# Threads of torch that wait for each other sleep instead of spinning. On a machine with other busy processes, spinning
# threads hold the cores that the threads they wait for need. OpenMP reads its variables when torch is loaded.
if "torch" not in sys.modules and not {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "cluster.estimator": ("LearnedClustering",),
        "detect.detections": ("Detections",),
        "detect.detector": ("Detector",),
        "embed.losses.group_loss": ("GroupLoss",),
        "embed.metrics": ("retrieval_metrics",),
        "embed.training.sampler": ("BalancedBatchSampler",),
        "label.semi_supervised.augmenter": ("LabelAugmenter",),
        "label.semi_supervised.classifier": ("ImageClassifier",),
        "label.transduction": ("GraphTransduction",),
        "read.reader": ("ScoreReader",),
    },
)
