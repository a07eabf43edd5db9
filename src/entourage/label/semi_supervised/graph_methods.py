"""Training on found labels: a network that takes what a graph said for granted (thesis, chapter 3).

GraphConsistency training that starts from a graph's labels and ends with the network's own.

A graph knows which images resemble each other; a network that has seen many views knows which differences do not
matter. Each is a witness with its own mistakes, so their beliefs are multiplied: an image counts as far as both agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import Batch, MethodOptions, Rows, SemiSupervisedMethod
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import PseudoLabelMode
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels
from entourage.training.task import Losses


class GraphPseudoLabel(SemiSupervisedMethod):
    """Cross-entropy with found labels on weak views.

    Args:
        network, data, options: as for `SemiSupervisedMethod`.
        pseudo_labels: a label for every image.
        pseudo_label_mode: how far they are trusted.
        pool_labels: train on known and pseudo-labels as one set, as in the thesis; otherwise each batch has separate
            known ones, which weigh as much as all others together.
    """

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        pseudo_labels: PseudoLabels,
        pseudo_label_mode: PseudoLabelMode = "weighted",
        pool_labels: bool = False,
    ) -> None:
        super().__init__(network, data, options)
        pseudo_labels.check(len(data), data.n_classes)
        self.pseudo_label_mode = pseudo_label_mode
        self.pool_labels = pool_labels
        self.labels_digest = pseudo_labels.digest()
        self.targets, self.weights = pseudo_labels.targets(pseudo_label_mode)  # (n, m), (n,)

    def prepare(self, device: torch.device) -> None:
        """The found labels go to the device too."""
        super().prepare(device)
        self.targets, self.weights = self.targets.to(device), self.weights.to(device)

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """As for every method; without the labelled images beside each batch where all are alike."""
        plan = super().plan(epoch)
        return [(labelled[:0], rows) for labelled, rows in plan] if self.pool_labels else plan

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Cross-entropy on given and found labels: two means, or one over all where they are alike."""
        if not self.pool_labels:
            return super().loss(model, batch, step)
        (views,) = self.unlabelled_views(batch)
        return {"loss": self.unlabelled_loss([model(views).float()], batch, step)}

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Weighted cross-entropy with the found labels."""
        return weighted_cross_entropy(logits[0], self.targets[batch.unlabelled], self.weights[batch.unlabelled])

    def config(self) -> dict[str, Any]:
        """With what was found."""
        return {
            **super().config(),
            "pseudo_label_mode": self.pseudo_label_mode,
            "pool_labels": self.pool_labels,
            "pseudo_labels": self.labels_digest,
        }


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean over a batch of w_i H(t_i, softmax(logits_i)), the sum of weights taken as the batch's size.

    Args:
        logits: shape (b, m).
        targets: distributions, shape (b, m).
        weights: shape (b,), not negative; if all are 0, so is the result.
    """
    each = -(targets * F.log_softmax(logits, dim=1)).sum(dim=1)  # (b,)
    return (weights * each).sum() / weights.sum().clamp_min(1e-6)


MIN_PROBABILITY = 1e-3  # no witness can rule a class out alone
TIE_TOLERANCE = 1e-6  # a target whose classes differ by less prefers none: it is no label
MEAN_DECAY = 0.98  # of the running mean of the network's answers


class GraphConsistency(SemiSupervisedMethod):
    """Strong views should be answered as the graph and the averaged network together label the image.

    Args:
        network, data, options: as for `SemiSupervisedMethod`.
        pseudo_labels: what the graph says.
        warmup_steps: in which only the graph is heard; the network's answers mean nothing yet.
        class_priors: how frequent each class is, if that is known, shape (m,); the network's answers are held to it, so
            that an easy class does not swallow the others. None: answers are taken as they are.
    """

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        pseudo_labels: PseudoLabels,
        warmup_steps: int = 100,
        class_priors: Tensor | None = None,
    ) -> None:
        super().__init__(network, data, options)
        pseudo_labels.check(len(data), data.n_classes)
        if class_priors is not None and (class_priors.shape != (data.n_classes,) or not (class_priors > 0).all()):
            raise ValueError(
                f"class_priors is {class_priors.tolist()}; expected {data.n_classes} numbers above 0, one a class"
            )
        self.warmup_steps = warmup_steps
        self.labels_digest = pseudo_labels.digest()
        self.soft_targets = pseudo_labels.soft_targets()  # (n, m)
        self.class_priors = class_priors  # (m,)
        start = torch.full((data.n_classes,), 1 / data.n_classes) if class_priors is None else class_priors
        self.mean_prediction = start.clone()  # (m,), running mean of the teacher's answers

    def prepare(self, device: torch.device) -> None:
        """The soft targets go to the device too."""
        super().prepare(device)
        self.soft_targets, self.mean_prediction = self.soft_targets.to(device), self.mean_prediction.to(device)
        self.class_priors = None if self.class_priors is None else self.class_priors.to(device)

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """One strong view; the teacher sees a weak one."""
        return (self.views.strong(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy with what both witnesses think, weighted by the square of how sure they are together."""
        target = self.soft_targets[batch.unlabelled]  # (b, m)
        if step >= self.warmup_steps:
            prediction = self.teacher_probabilities(self.views.weak(batch.unlabelled))  # (b, m)
            if self.class_priors is not None:
                prediction = self._align(prediction, self.class_priors)
            target = target.clamp_min(MIN_PROBABILITY) * prediction.clamp_min(MIN_PROBABILITY)
            if self.class_priors is not None:  # both witnesses have counted it
                target = target / self.class_priors
            target = target / target.sum(dim=1, keepdim=True)
        confidence, label = target.max(dim=1)
        is_decided = confidence - target.amin(dim=1) > TIE_TOLERANCE
        return weighted_cross_entropy(logits[0], F.one_hot(label, target.shape[1]).float(), is_decided * confidence**2)

    def _align(self, prediction: Tensor, class_priors: Tensor) -> Tensor:
        """The teacher's answers (b, m), held to the classes' shares on average (distribution alignment)."""
        mean = _mean_over_processes(prediction.mean(dim=0))
        self.mean_prediction = MEAN_DECAY * self.mean_prediction + (1 - MEAN_DECAY) * mean
        aligned = prediction * (class_priors / self.mean_prediction)
        return aligned / aligned.sum(dim=1, keepdim=True)

    def extra_state(self) -> dict[str, Tensor]:
        """The average and the running mean of answers."""
        return {**super().extra_state(), "mean_prediction": self.mean_prediction}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take both back."""
        self.mean_prediction = state["mean_prediction"].to(self.mean_prediction.device)
        super().load_extra_state({name: value for name, value in state.items() if name != "mean_prediction"})

    def config(self) -> dict[str, Any]:
        """With what the graph said, and how frequent classes are."""
        priors = None if self.class_priors is None else [round(prior, 6) for prior in self.class_priors.tolist()]
        return {
            **super().config(),
            "warmup_steps": self.warmup_steps,
            "pseudo_labels": self.labels_digest,
            "class_priors": priors,
        }


def _mean_over_processes(mean: Tensor) -> Tensor:
    """The mean of all processes' means: what steers the training must be the same for all, and so in a checkpoint."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return mean
    total = mean.contiguous()
    dist.all_reduce(total)
    return total / dist.get_world_size()
