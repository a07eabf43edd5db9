"""A few labels in, a label and a confidence for every item out."""

from entourage.label.baselines import (
    LabelHarmonic,
    LabelPropagation,
    LabelSpreading,
    LinearSVMLabeller,
    PoissonLearning,
)
from entourage.label.targets import excluding_prior
from entourage.label.transduction import PRESETS, GraphTransduction, TransductionOptions, preset

__all__ = [
    "PRESETS",
    "GraphTransduction",
    "LabelHarmonic",
    "LabelPropagation",
    "LabelSpreading",
    "LinearSVMLabeller",
    "PoissonLearning",
    "TransductionOptions",
    "excluding_prior",
    "preset",
]
