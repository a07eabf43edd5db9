"""All ways to train a network on few labels, by name and behind one interface."""

from __future__ import annotations

from collections.abc import Mapping

from entourage.label.base import GraphLabeller
from entourage.label.classify.fixmatch import FixMatch
from entourage.label.classify.mean_teacher import MeanTeacher
from entourage.label.classify.method import Method
from entourage.label.classify.pi_model import PiModel
from entourage.label.classify.pseudo_label import PseudoLabel
from entourage.label.classify.supervised import Supervised
from entourage.label.classify.vat import VirtualAdversarial
from entourage.label.linear import LabelHarmonic, LabelSpreading, PoissonLearning
from entourage.label.propagation import LabelPropagation
from entourage.label.svm import LinearSVMLabeller
from entourage.label.transduction import GraphTransduction

METHODS: Mapping[str, type[Method]] = {
    "supervised": Supervised,
    "pi-model": PiModel,
    "mean-teacher": MeanTeacher,
    "pseudo-label": PseudoLabel,
    "vat": VirtualAdversarial,
    "fixmatch": FixMatch,
}
"""Networks that learn without a graph: `METHODS[name](network, examples, options)` is a task for `train`."""

LABELLERS: Mapping[str, type[GraphLabeller]] = {
    "game": GraphTransduction,
    "spreading": LabelSpreading,
    "propagation": LabelPropagation,
    "harmonic": LabelHarmonic,
    "poisson": PoissonLearning,
    "svm": LinearSVMLabeller,
}
"""What can label all images in the game's place: `play_rounds(network, examples, LABELLERS[name](), ...)`."""
