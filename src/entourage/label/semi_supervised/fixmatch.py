"""FixMatch (Sohn et al., 2020): sure answers to weak views are labels for strong ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.method import Batch
from entourage.label.semi_supervised.told import SureMethod


class FixMatch(SureMethod):
    """Cross-entropy of strong views with the network's own sure answers to weak views."""

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """A weak and a strong view."""
        return self.looks.weak(batch.unlabelled), self.looks.strong(batch.unlabelled)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy where the weak view is sure, averaged over all images."""
        weak, strong = logits
        sure, label = F.softmax(weak.detach(), dim=1).max(dim=1)  # (b,), (b,)
        return (F.cross_entropy(strong, label, reduction="none") * (sure >= self.threshold)).mean()
