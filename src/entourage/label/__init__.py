"""Transductive classifiers: labels and confidences for a whole data set from a few labelled items."""

from entourage.label.active_learning import suggest_labels
from entourage.label.baselines import (
    LabelHarmonic,
    LabelPropagation,
    LabelSpreading,
    LinearSVMLabeller,
    PoissonLearning,
)
from entourage.label.ensemble.auto import AutoTransduction
from entourage.label.targets import exclusion_prior
from entourage.label.transduction import GraphTransduction

__all__ = [
    "AutoTransduction",
    "GraphTransduction",
    "LabelHarmonic",
    "LabelPropagation",
    "LabelSpreading",
    "LinearSVMLabeller",
    "PoissonLearning",
    "exclusion_prior",
    "suggest_labels",
]
