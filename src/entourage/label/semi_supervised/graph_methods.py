"""Training on the pseudo-labels of a graph: alone (thesis, chapter 3), or combined with the network's predictions.

A graph and a network make different errors: the graph compares images as they are, while the network has learned
invariances from many views. `GraphConsistency` therefore multiplies their distributions, and weights an image by the
confidence of the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import (
    Batch,
    MethodOptions,
    Rows,
    SemiSupervisedMethod,
    mean_over_processes,
)
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import PseudoLabelMode
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels
from entourage.training.task import Losses


class GraphPseudoLabel(SemiSupervisedMethod):
    """Cross-entropy of weak views with pseudo-labels.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        pseudo_labels: a label for every image.
        pseudo_label_mode: "hard", "soft" or "weighted"; see `PseudoLabels.targets`.
        pool_labels: train on given and pseudo-labels as one set, as in the thesis; otherwise each batch has additional
            labelled images, whose mean loss is added with weight 1.
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
        """Move the images and the targets to the device."""
        super().prepare(device)
        self.targets, self.weights = self.targets.to(device), self.weights.to(device)

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """Return the batches of an epoch; with `pool_labels`, without separate labelled images."""
        plan = super().plan(epoch)
        return [(labelled[:0], rows) for labelled, rows in plan] if self.pool_labels else plan

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Compute the sum of the losses of given and pseudo-labels, or with `pool_labels` one mean over all images."""
        if not self.pool_labels:
            return super().loss(model, batch, step)
        (views,) = self.unlabelled_views(batch)
        return {"loss": self.unlabelled_loss([model(views).float()], batch, step)}

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return one weak view of each image."""
        return (self.views.weak(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the weighted cross-entropy with the pseudo-labels."""
        return weighted_cross_entropy(logits[0], self.targets[batch.unlabelled], self.weights[batch.unlabelled])

    def config(self) -> dict[str, Any]:
        """Return the configuration with the pseudo-labels and their mode."""
        return {
            **super().config(),
            "pseudo_label_mode": self.pseudo_label_mode,
            "pool_labels": self.pool_labels,
            "pseudo_labels": self.labels_digest,
        }


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Compute the weighted mean sum_i w_i H(t_i, softmax(logits_i)) / sum_i w_i of a batch.

    Args:
        logits: shape (b, m).
        targets: distributions, shape (b, m).
        weights: shape (b,), non-negative; the result is 0 if all of them are 0.
    """
    each = -(targets * F.log_softmax(logits, dim=1)).sum(dim=1)  # (b,)
    return (weights * each).sum() / weights.sum().clamp_min(1e-6)


MIN_PROBABILITY = 1e-3  # neither graph nor network alone can exclude a class
TIE_TOLERANCE = 1e-6  # an almost uniform target is not a label
MEAN_DECAY = 0.98  # decay of the running mean of predictions


class GraphConsistency(SemiSupervisedMethod):
    """Cross-entropy of strong views with the product of the graph's and the averaged network's distributions.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        pseudo_labels: labels of the graph.
        warmup_steps: number of first steps that use the graph's distributions only, as the head is still untrained.
        class_priors: class frequencies, if they are known, shape (m,); the mean prediction of the network is aligned
            with them, so that an easy class does not absorb the others. None: predictions are not aligned.
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
                f"class_priors is {class_priors.tolist()}; expected {data.n_classes} numbers above 0, one per class"
            )
        self.warmup_steps = warmup_steps
        self.labels_digest = pseudo_labels.digest()
        self.soft_targets = pseudo_labels.soft_targets()  # (n, m)
        self.class_priors = class_priors  # (m,)
        start = torch.full((data.n_classes,), 1 / data.n_classes) if class_priors is None else class_priors
        self.mean_prediction = start.clone()  # (m,), running mean of the teacher's predictions

    def prepare(self, device: torch.device) -> None:
        """Move the images, the soft targets and the class priors to the device."""
        super().prepare(device)
        self.soft_targets, self.mean_prediction = self.soft_targets.to(device), self.mean_prediction.to(device)
        self.class_priors = None if self.class_priors is None else self.class_priors.to(device)

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return one strong view of each image; the averaged network (teacher) receives a weak view."""
        return (self.views.strong(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the cross-entropy with the class of the combined distribution, weighted by its squared confidence."""
        target = self.soft_targets[batch.unlabelled]  # (b, m)
        if step >= self.warmup_steps:
            prediction = self.teacher_probabilities(self.views.weak(batch.unlabelled))  # (b, m)
            if self.class_priors is not None:
                prediction = self._align(prediction, self.class_priors)
            target = target.clamp_min(MIN_PROBABILITY) * prediction.clamp_min(MIN_PROBABILITY)
            if self.class_priors is not None:  # both factors include the prior
                target = target / self.class_priors
            target = target / target.sum(dim=1, keepdim=True)
        confidence, label = target.max(dim=1)
        is_decided = confidence - target.amin(dim=1) > TIE_TOLERANCE
        return weighted_cross_entropy(logits[0], F.one_hot(label, target.shape[1]).float(), is_decided * confidence**2)

    def _align(self, prediction: Tensor, class_priors: Tensor) -> Tensor:
        """Scale predictions, shape (b, m), so that their mean matches the class priors (distribution alignment)."""
        mean = mean_over_processes(prediction.mean(dim=0))
        self.mean_prediction = MEAN_DECAY * self.mean_prediction + (1 - MEAN_DECAY) * mean
        aligned = prediction * (class_priors / self.mean_prediction)
        return aligned / aligned.sum(dim=1, keepdim=True)

    def extra_state(self) -> dict[str, Tensor]:
        """Return the averaged network and the running mean of predictions."""
        return {**super().extra_state(), "mean_prediction": self.mean_prediction}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the averaged network and the running mean of predictions."""
        self.mean_prediction = state["mean_prediction"].to(self.mean_prediction.device)
        super().load_extra_state({name: value for name, value in state.items() if name != "mean_prediction"})

    def config(self) -> dict[str, Any]:
        """Return the configuration with the pseudo-labels and the class priors."""
        priors = None if self.class_priors is None else [round(prior, 6) for prior in self.class_priors.tolist()]
        return {
            **super().config(),
            "warmup_steps": self.warmup_steps,
            "pseudo_labels": self.labels_digest,
            "class_priors": priors,
        }
