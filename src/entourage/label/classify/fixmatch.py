"""FixMatch (Sohn et al., 2020): sure answers to weak views are labels for strong ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from entourage.label.classify.examples import Examples
from entourage.label.classify.method import Batch, Method, MethodOptions
from entourage.label.classify.network import ImageNetwork

THRESHOLD = 0.95


class FixMatch(Method):
    """Cross-entropy of strong views with the network's own sure answers to weak views.

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
        """A weak and a strong view."""
        return self.looks.weak(batch.unlabelled), self.looks.strong(batch.unlabelled)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy where the weak view is sure, averaged over all images."""
        weak, strong = logits
        sure, label = F.softmax(weak.detach(), dim=1).max(dim=1)  # (b,), (b,)
        return (F.cross_entropy(strong, label, reduction="none") * (sure >= self.threshold)).mean()

    def describe(self) -> dict[str, Any]:
        """With the threshold."""
        return {**super().describe(), "threshold": self.threshold}
