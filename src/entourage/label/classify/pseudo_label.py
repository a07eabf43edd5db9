"""Pseudo-Label (Lee, 2013): what the network is sure of becomes a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from entourage.label.classify.examples import Examples
from entourage.label.classify.method import Batch, Method, MethodOptions
from entourage.label.classify.network import ImageNetwork

THRESHOLD = 0.95  # as later comparisons of the method have it; the first version trusted every answer


class PseudoLabel(Method):
    """Cross-entropy with the network's own answer where it is sure, with a weight that grows.

    Args:
        network, examples, options: as for `Method`.
        threshold: how sure an answer must be.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        threshold: float = THRESHOLD,
    ) -> None:
        super().__init__(network, examples, options)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold}; expected a share of 0 to 1")
        self.threshold = threshold

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy of sure answers with themselves, averaged over all images."""
        sure, label = F.softmax(logits[0].detach(), dim=1).max(dim=1)  # (b,), (b,)
        each = F.cross_entropy(logits[0], label, reduction="none")
        return self.ramp(step) * (each * (sure >= self.threshold)).mean()

    def describe(self) -> dict[str, Any]:
        """With the threshold."""
        return {**super().describe(), "threshold": self.threshold}
