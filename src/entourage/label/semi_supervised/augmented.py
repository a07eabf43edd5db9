"""Training on found labels: a network that takes what a graph said for granted (thesis, chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.given import FoundLabels
from entourage.label.semi_supervised.method import Batch, Method, MethodOptions, Rows
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import Trust
from entourage.training.task import Losses


class Augmented(Method):
    """Cross-entropy with found labels on weak views.

    Args:
        network, examples, options: as for `Method`.
        found: a label for every image.
        trust: how far they are trusted.
        alike: given and found labels are one set to train on, as in the thesis; otherwise each batch has given ones of
            its own beside it, which count as much as all others together.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        found: FoundLabels,
        trust: Trust = "weighted",
        alike: bool = False,
    ) -> None:
        super().__init__(network, examples, options)
        found.check(len(examples), examples.classes)
        self.trust = trust
        self.alike = alike
        self.found = found.digest()
        self.targets, self.weights = found.targets(trust)  # (n, m), (n,)

    def prepare(self, device: torch.device) -> None:
        """The found labels go to the device too."""
        super().prepare(device)
        self.targets, self.weights = self.targets.to(device), self.weights.to(device)

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """As for every method; without the labelled images beside each batch where all are alike."""
        plan = super().plan(epoch)
        return [(labelled[:0], rows) for labelled, rows in plan] if self.alike else plan

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Cross-entropy on given and found labels: two means, or one over all where they are alike."""
        if not self.alike:
            return super().loss(model, batch, step)
        (views,) = self.views(batch)
        return {"loss": self.disagreement([model(views).float()], batch, step)}

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Weighted cross-entropy with the found labels."""
        return weighted_cross_entropy(logits[0], self.targets[batch.unlabelled], self.weights[batch.unlabelled])

    def describe(self) -> dict[str, Any]:
        """With what was found."""
        return {**super().describe(), "trust": self.trust, "alike": self.alike, "found": self.found}


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean over a batch of w_i H(t_i, softmax(logits_i)), the sum of weights taken as the batch's size.

    Args:
        logits: shape (b, m).
        targets: distributions, shape (b, m).
        weights: shape (b,), not negative; if all are 0, so is the result.
    """
    each = -(targets * F.log_softmax(logits, dim=1)).sum(dim=1)  # (b,)
    return (weights * each).sum() / weights.sum().clamp_min(1e-6)
