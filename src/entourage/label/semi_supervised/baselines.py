"""Baselines of semi-supervised learning: training without a graph, other labellers, and classifiers on fixed features.

`METHODS` has supervised training and the semi-supervised methods: Pi-model (Laine and Aila, 2017), Mean Teacher
(Tarvainen and Valpola, 2017), Pseudo-Label (Lee, 2013), FixMatch (Sohn et al., 2020) and virtual adversarial training
(Miyato et al., 2018). `LABELLERS` has the labellers of self-training. `frozen_classifier` returns classifiers on the
features of a network that is not trained.
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
    """Supervised training: cross-entropy on the labelled images only ("CNN" in the thesis' tables)."""

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """Return the same number of batches as the other methods, with labelled images only."""
        return [(labelled, rows[:0]) for labelled, rows in super().plan(epoch)]

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return no views."""
        return []

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Return 0."""
        return torch.zeros((), device=batch.codes.device)


class PiModel(WeightedMethod):
    """Pi-model: squared difference between the predictions for two weak views, with a weight that grows."""

    # With a larger weight, all images soon get one class: the authors scale the weight by the fraction of labels.
    default_weight = 0.1

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return two weak views of each image."""
        return self.views.weak(batch.unlabelled), self.views.weak(batch.unlabelled)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the mean squared difference between the two distributions."""
        one, other = (F.softmax(z, dim=1) for z in logits)
        return self.weight * self.ramp(step) * F.mse_loss(one, other)


class MeanTeacher(WeightedMethod):
    """Mean Teacher: squared difference between network and averaged network on two views, with a weight that grows."""

    default_weight = 10.0

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return one weak view of each image; the averaged network (teacher) receives another weak view."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the mean squared difference from the teacher's distributions."""
        probabilities = F.softmax(logits[0], dim=1)
        target = self.teacher_probabilities(self.views.weak(batch.unlabelled))
        return self.weight * self.ramp(step) * F.mse_loss(probabilities, target)


class PseudoLabel(ConfidenceThresholdMethod):
    """Pseudo-Label: cross-entropy with the network's own confident predictions, with a weight that grows."""

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return one weak view of each image."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the cross-entropy of confident predictions with their own class, averaged over all images."""
        confidence, label = F.softmax(logits[0].detach(), dim=1).max(dim=1)  # (b,), (b,)
        each = F.cross_entropy(logits[0], label, reduction="none")
        return self.ramp(step) * (each * (confidence >= self.threshold)).mean()


class FixMatch(ConfidenceThresholdMethod):
    """FixMatch: cross-entropy of strong views with the network's confident predictions for weak views."""

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return a weak and a strong view of each image."""
        return self.views.weak(batch.unlabelled), self.views.strong(batch.unlabelled)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the cross-entropy where the prediction for the weak view is confident, averaged over all images."""
        weak, strong = logits
        confidence, label = F.softmax(weak.detach(), dim=1).max(dim=1)  # (b,), (b,)
        return (F.cross_entropy(strong, label, reduction="none") * (confidence >= self.threshold)).mean()


VAT_WEIGHT = 0.3
VAT_RADIUS = 0.003  # length of the perturbation relative to the length of the input
PROBE_RADIUS = 1e-3  # relative length of the perturbation in the power iteration


class VirtualAdversarial(SemiSupervisedMethod):
    """Virtual adversarial training: divergence between predictions for an image and for its worst small perturbation.

    The variant with entropy minimisation is not used: with few labels it soon gives all images one class.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        radius: length of the perturbation relative to the length of the input.
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
        """Return a weak view, and this view perturbed in the direction that changes the prediction most.

        The perturbation is added to the input of the trained layers: the image, or the activations of a frozen stem.
        """
        clean = self.views.weak(batch.unlabelled)
        return clean, clean + self.radius * _length(clean) * self._worst_direction(clean)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the Kullback-Leibler divergence, with a weight that grows."""
        clean, moved = (F.log_softmax(z, dim=1) for z in logits)  # (b, m)
        divergence = F.kl_div(moved, clean.detach(), log_target=True, reduction="batchmean")
        return VAT_WEIGHT * self.ramp(step) * divergence

    def config(self) -> dict[str, Any]:
        """Return the configuration with the radius."""
        return {**super().config(), "radius": self.radius}

    def _worst_direction(self, inputs: Tensor) -> Tensor:
        """Compute unit perturbations, shape (b, c, h, w), by one power iteration on the Hessian of the divergence."""
        network = self.average.module  # these passes must not update the batch statistics of the trained network
        with torch.enable_grad():  # in float32: with 16 bits the probe is lost in rounding errors
            log_probabilities = F.log_softmax(network(inputs), dim=1).detach()
            direction = _unit(torch.randn_like(inputs)).requires_grad_()
            moved = F.log_softmax(network(inputs + PROBE_RADIUS * _length(inputs) * direction), dim=1)
            divergence = F.kl_div(moved, log_probabilities, log_target=True, reduction="sum")
            (gradient,) = torch.autograd.grad(divergence, direction)
        return _unit(gradient)


def _unit(inputs: Tensor) -> Tensor:
    return inputs / _length(inputs)


def _length(inputs: Tensor) -> Tensor:
    """Return the Euclidean length of each input, shape (b, 1, 1, 1), at least 1e-12."""
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
"""Training methods without a graph, by name: `METHODS[name](network, data, options)` is a task for `train`."""

LABELLERS: Mapping[str, type[GraphLabeller]] = {
    "game": GraphTransduction,
    "spreading": LabelSpreading,
    "propagation": LabelPropagation,
    "harmonic": LabelHarmonic,
    "poisson": PoissonLearning,
    "svm": LinearSVMLabeller,
}
"""Labellers of self-training, by name: `self_train(network, data, LABELLERS[name](), ...)`."""


# The values of 1,280-dimensional unit features are small, so scikit-learn's default C = 1 would regularise too much.
DEFAULT_C = {"linear": 100.0, "linear-svm": 1.0, "kernel-svm": 10.0}
FROZEN = tuple(DEFAULT_C)


def frozen_classifier(name: str, c: float | None = None) -> Any:
    """Return an unfitted scikit-learn classifier for features (n, d), which it scales to length 1.

    Args:
        name: "linear" (logistic regression: transfer learning), "linear-svm" or "kernel-svm" (Gaussian kernel).
        c: inverse regularisation strength C; by default as in `DEFAULT_C`.

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
