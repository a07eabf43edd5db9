"""A few labels in, a label and a confidence for every item out."""

from entourage.label.linear import LabelHarmonic, LabelSpreading, PoissonLearning
from entourage.label.options import PRESETS, TransductionOptions, preset
from entourage.label.propagation import LabelPropagation
from entourage.label.svm import LinearSVMLabeller
from entourage.label.targets import excluding_prior
from entourage.label.transduction import GraphTransduction

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
