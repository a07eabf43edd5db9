"""Training of the student: labels of the rounds that fade, and confident predictions of its own average."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import Batch, MethodOptions, SemiSupervisedMethod, mean_over_processes
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels
from entourage.training.options import TrainingOptions

FADE = 0.65  # fraction of the steps after which the labels of the rounds have no weight
RISE = 0.02  # fraction of the steps over which the weight of the own predictions rises to 1
FAIRNESS = 0.05  # weight of the loss that keeps the mean prediction near the class frequencies
DECAY = 0.98  # decay of the running means of predictions and confidences
_STATE = ("mean_prediction", "confidence", "class_confidence")

Metrics = Callable[[ImageNetwork], Mapping[str, float]]


class StudentTask(SemiSupervisedMethod):
    """Cross-entropy of strong views, at first with the labels of the rounds, then with the network's own predictions.

    Three losses are added to that of the given labels:

    - The labels of the rounds, weighted by squared confidence. This weight falls linearly to 0.
    - The class that the averaged network predicts for a weak view, where it is confident enough. The predictions are
      scaled to the class frequencies. The threshold follows the mean confidence of all predictions and, relative to the
      most confident class, that of the predicted class, as in FreeMatch.
    - The cross-entropy of the class frequencies with the mean prediction of a batch, with a small weight.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        pseudo_labels: labels of the rounds.
        class_priors: class frequencies, shape (m,).
        training: options of the training; its number of steps determines the weights of the losses.
        metrics: metrics of the averaged network at every validation.
    """

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        pseudo_labels: PseudoLabels,
        class_priors: Tensor,
        training: TrainingOptions,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(network, data, options)
        pseudo_labels.check(len(data), data.n_classes)
        if class_priors.shape != (data.n_classes,) or not (class_priors > 0).all():
            raise ValueError(
                f"class_priors is {class_priors.tolist()}; expected {data.n_classes} numbers above 0, one per class"
            )
        self.labels_digest = pseudo_labels.digest()
        self.found, self.weights = pseudo_labels.targets("weighted")  # (n, m), (n,)
        self.class_priors = class_priors
        steps = training.epochs * self.steps()
        self.total_steps = steps if training.max_steps is None else min(steps, training.max_steps)
        self.metrics = metrics
        self.mean_prediction = class_priors.clone()  # (m,)
        self.confidence = torch.tensor(1 / data.n_classes)  # running mean of the confidence
        self.class_confidence = torch.full((data.n_classes,), 1 / data.n_classes)  # the same by predicted class, (m,)

    def prepare(self, device: torch.device) -> None:
        """Move images, labels and running means to the device."""
        super().prepare(device)
        for name in ("found", "weights", "class_priors", *_STATE):
            setattr(self, name, getattr(self, name).to(device))

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return one strong view of each image; the averaged network receives a weak view."""
        return (self.views.strong(batch.unlabelled),)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the sum of the three losses of unlabelled images."""
        log_p = F.log_softmax(logits[0], dim=1)  # (b, m)
        prediction = self._align(self.teacher_probabilities(self.views.weak(batch.unlabelled)))
        confidence, label = prediction.max(dim=1)
        sure = (confidence >= self._update_thresholds(confidence, label)[label]).float()  # (b,)
        own = -(sure * log_p.gather(1, label[:, None]).squeeze(1)).mean()
        each = -(self.found[batch.unlabelled] * log_p).sum(dim=1)  # (b,)
        found = (self.weights[batch.unlabelled] * each).mean()
        log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(log_p))  # of the mean prediction, (m,)
        fairness = -(self.class_priors * log_mean).sum()
        return self.fade(step) * found + self.rise(step) * own + FAIRNESS * fairness

    def fade(self, step: int) -> float:
        """Return the weight of the labels of the rounds, which falls linearly to 0."""
        return max(0.0, 1 - step / (FADE * self.total_steps))

    def rise(self, step: int) -> float:
        """Return the weight of the own predictions, which rises linearly to 1."""
        return min(1.0, step / max(1.0, RISE * self.total_steps))

    def _align(self, prediction: Tensor) -> Tensor:
        """Scale predictions, shape (b, m), so that their running mean is that of the class frequencies."""
        mean = mean_over_processes(prediction.mean(dim=0))
        self.mean_prediction = DECAY * self.mean_prediction + (1 - DECAY) * mean
        aligned = prediction * (self.class_priors / self.mean_prediction.clamp_min(1e-6))
        return aligned / aligned.sum(dim=1, keepdim=True)

    def _update_thresholds(self, confidence: Tensor, label: Tensor) -> Tensor:
        """Update the running means of the confidence and return the threshold of each class, shape (m,)."""
        one_hot = F.one_hot(label, len(self.class_priors)).float()  # (b, m)
        sums = torch.cat([confidence @ one_hot, one_hot.sum(dim=0), confidence.sum()[None]]) / len(label)
        means = mean_over_processes(sums)  # one message for all of them
        by_class, counts = means[:-1].chunk(2)
        self.confidence = DECAY * self.confidence + (1 - DECAY) * means[-1]
        current = torch.where(counts > 0, by_class / counts.clamp_min(1e-9), self.class_confidence)
        self.class_confidence = DECAY * self.class_confidence + (1 - DECAY) * current
        return self.confidence * self.class_confidence / self.class_confidence.max()

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Compute the metrics of the averaged network."""
        if self.metrics is None or not isinstance(model, ImageNetwork):
            return {}
        return dict(self.metrics(model))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return matrices and filters with weight decay, and scales and shifts without."""
        parameters = list(self.model.parameters())
        return [
            {"params": [parameter for parameter in parameters if parameter.ndim > 1]},
            {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
        ]

    def extra_state(self) -> dict[str, Tensor]:
        """Return the averaged network and the running means."""
        return {**super().extra_state(), **{name: getattr(self, name) for name in _STATE}}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the averaged network and the running means."""
        for name in _STATE:
            setattr(self, name, state[name].to(getattr(self, name).device))
        super().load_extra_state({name: value for name, value in state.items() if name not in _STATE})

    def config(self) -> dict[str, Any]:
        """Return the configuration with the labels of the rounds, the class frequencies and the number of steps."""
        return {
            **super().config(),
            "pseudo_labels": self.labels_digest,
            "class_priors": [round(prior, 6) for prior in self.class_priors.tolist()],
            "total_steps": self.total_steps,
        }
