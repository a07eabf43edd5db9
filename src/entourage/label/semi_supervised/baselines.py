"""The plain network: trained on the labelled images alone.

The Pi-model (Laine and Aila, 2017): two views of an image should be answered alike.

Mean Teacher (Tarvainen and Valpola, 2017): answer like the average of one's own past.

Pseudo-Label (Lee, 2013): what the network is sure of becomes a label.

FixMatch (Sohn et al., 2020): sure answers to weak views are labels for strong ones.

Virtual adversarial training (Miyato et al., 2018): the answer should not change where it is easiest to change.

All ways to train a network on few labels, by name and behind one interface.

Rivals that leave the network as it is: classifiers on its features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import SVC, LinearSVC
from torch import Tensor

from entourage.label.base import GraphLabeller
from entourage.label.baselines import (
    LabelHarmonic,
    LabelPropagation,
    LabelSpreading,
    LinearSVMLabeller,
    PoissonLearning,
)
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import (
    Batch,
    ConfidenceThresholdMethod,
    MethodOptions,
    Rows,
    SemiSupervisedMethod,
    WeightedMethod,
)
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.transduction import GraphTransduction


class Supervised(SemiSupervisedMethod):
    """Cross-entropy on the labelled images; the others are not even loaded ("CNN" in the thesis' tables)."""

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """As many steps as the other methods make, of labelled images only."""
        return [(labelled, rows[:0]) for labelled, rows in super().plan(epoch)]

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """None."""
        return []

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Nothing to disagree about."""
        return torch.zeros((), device=batch.codes.device)


class PiModel(WeightedMethod):
    """Squared difference between the network's answers to two views, with a weight that grows."""

    # More soon gives all images one class: the authors reduce the weight with the fraction of labels.
    default_weight = 0.1

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Two weak views."""
        return self.views.weak(batch.unlabelled), self.views.weak(batch.unlabelled)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Mean squared difference of the two distributions."""
        one, other = (F.softmax(z, dim=1) for z in logits)
        return self.weight * self.ramp(step) * F.mse_loss(one, other)


class MeanTeacher(WeightedMethod):
    """Squared difference between the network and its averaged weights on two views, with a weight that grows."""

    default_weight = 10.0

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view; the teacher sees another."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Mean squared difference to the teacher's distributions."""
        probabilities = F.softmax(logits[0], dim=1)
        target = self.teacher_probabilities(self.views.weak(batch.unlabelled))
        return self.weight * self.ramp(step) * F.mse_loss(probabilities, target)


class PseudoLabel(ConfidenceThresholdMethod):
    """Cross-entropy with the network's own answer where it is sure, with a weight that grows."""

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy of sure answers with themselves, averaged over all images."""
        confidence, label = F.softmax(logits[0].detach(), dim=1).max(dim=1)  # (b,), (b,)
        each = F.cross_entropy(logits[0], label, reduction="none")
        return self.ramp(step) * (each * (confidence >= self.threshold)).mean()


class FixMatch(ConfidenceThresholdMethod):
    """Cross-entropy of strong views with the network's own sure answers to weak views."""

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """A weak and a strong view."""
        return self.views.weak(batch.unlabelled), self.views.strong(batch.unlabelled)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy where the weak view is sure, averaged over all images."""
        weak, strong = logits
        confidence, label = F.softmax(weak.detach(), dim=1).max(dim=1)  # (b,), (b,)
        return (F.cross_entropy(strong, label, reduction="none") * (confidence >= self.threshold)).mean()


VAT_WEIGHT = 0.3
VAT_RADIUS = 0.003  # length of the perturbation as a share of the input's own length
PROBE_RADIUS = 1e-3  # and of the one with which the direction is looked for


class VirtualAdversarial(SemiSupervisedMethod):
    """Divergence between the answers to an image and to its worst small perturbation.

    The variant that also makes answers sure (entropy minimisation) soon gives all images one class if labels are few.

    Args:
        network, data, options: as for `SemiSupervisedMethod`.
        radius: length of the perturbation as a share of the input's own.
    """

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        radius: float = VAT_RADIUS,
    ) -> None:
        super().__init__(network, data, options)
        if not radius > 0:
            raise ValueError(f"radius is {radius}; expected a number above 0")
        self.radius = radius

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """A weak view and the same view moved in the direction that changes the answer most.

        What is moved is the network's input: the image, or the activations of a stem that is not trained.
        """
        clean = self.views.weak(batch.unlabelled)
        return clean, clean + self.radius * _length(clean) * self._worst_direction(clean)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Kullback-Leibler divergence, with a weight that grows."""
        clean, moved = (F.log_softmax(z, dim=1) for z in logits)  # (b, m)
        divergence = F.kl_div(moved, clean.detach(), log_target=True, reduction="batchmean")
        return VAT_WEIGHT * self.ramp(step) * divergence

    def config(self) -> dict[str, Any]:
        """With the radius."""
        return {**super().config(), "radius": self.radius}

    def _worst_direction(self, inputs: Tensor) -> Tensor:
        """Unit perturbations, shape (b, c, h, w): one step of the power method on the divergence's curvature."""
        network = self.average.module  # in the network's place, whose statistics of batches must stay as they are
        with torch.enable_grad():  # in float32 whatever the run's format: 16 bits cannot tell the probe from nothing
            log_probabilities = F.log_softmax(network(inputs), dim=1).detach()
            direction = _unit(torch.randn_like(inputs)).requires_grad_()
            moved = F.log_softmax(network(inputs + PROBE_RADIUS * _length(inputs) * direction), dim=1)
            divergence = F.kl_div(moved, log_probabilities, log_target=True, reduction="sum")
            (gradient,) = torch.autograd.grad(divergence, direction)
        return _unit(gradient)


def _unit(inputs: Tensor) -> Tensor:
    return inputs / _length(inputs)


def _length(inputs: Tensor) -> Tensor:
    """The Euclidean length of each input, shape (b, 1, 1, 1), never 0."""
    length: Tensor = torch.linalg.vector_norm(inputs, dim=(1, 2, 3), keepdim=True)
    return length.clamp_min(1e-12)


METHODS: Mapping[str, type[SemiSupervisedMethod]] = {
    "supervised": Supervised,
    "pi-model": PiModel,
    "mean-teacher": MeanTeacher,
    "pseudo-label": PseudoLabel,
    "vat": VirtualAdversarial,
    "fixmatch": FixMatch,
}
"""Networks that learn without a graph: `METHODS[name](network, data, options)` is a task for `train`."""

LABELLERS: Mapping[str, type[GraphLabeller]] = {
    "game": GraphTransduction,
    "spreading": LabelSpreading,
    "propagation": LabelPropagation,
    "harmonic": LabelHarmonic,
    "poisson": PoissonLearning,
    "svm": LinearSVMLabeller,
}
"""What can label all images in the game's place: `self_train(network, data, LABELLERS[name](), ...)`."""


FROZEN = ("linear", "linear-svm", "kernel-svm")


# Unit features of 1,280 dimensions are small numbers: with the usual C = 1 little would be learnt from them.
DEFAULT_C = {"linear": 100.0, "linear-svm": 1.0, "kernel-svm": 10.0}


def frozen_classifier(name: str, c: float | None = None) -> Any:
    """A scikit-learn classifier for features (n, d), which it first scales to length 1.

    Args:
        name: "linear" (logistic regression: transfer learning), "linear-svm" or "kernel-svm" (Gaussian kernel).
        c: how much an error costs, against simplicity; by default as in `DEFAULT_C`.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in DEFAULT_C:
        raise ValueError(f"classifier {name!r} is unknown; expected one of {', '.join(FROZEN)}")
    cost = DEFAULT_C[name] if c is None else c
    classifiers = {
        "linear": lambda: LogisticRegression(C=cost, max_iter=1000),
        "linear-svm": lambda: LinearSVC(C=cost, max_iter=5000, random_state=0),
        "kernel-svm": lambda: SVC(C=cost, gamma="scale"),
    }
    return make_pipeline(Normalizer(), classifiers[name]())
