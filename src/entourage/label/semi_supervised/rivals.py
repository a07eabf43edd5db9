"""All ways to train a network on few labels, by name and behind one interface."""

from __future__ import annotations

from collections.abc import Mapping

from entourage.label.base import GraphLabeller
from entourage.label.linear import LabelHarmonic, LabelSpreading, PoissonLearning
from entourage.label.propagation import LabelPropagation
from entourage.label.semi_supervised.fixmatch import FixMatch
from entourage.label.semi_supervised.mean_teacher import MeanTeacher
from entourage.label.semi_supervised.method import Method
from entourage.label.semi_supervised.pi_model import PiModel
from entourage.label.semi_supervised.pseudo_label import PseudoLabel
from entourage.label.semi_supervised.supervised import Supervised
from entourage.label.semi_supervised.vat import VirtualAdversarial
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
