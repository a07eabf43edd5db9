"""Pseudo-Label (Lee, 2013): what the network is sure of becomes a label."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.method import Batch
from entourage.label.semi_supervised.told import SureMethod


class PseudoLabel(SureMethod):
    """Cross-entropy with the network's own answer where it is sure, with a weight that grows."""

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy of sure answers with themselves, averaged over all images."""
        sure, label = F.softmax(logits[0].detach(), dim=1).max(dim=1)  # (b,), (b,)
        each = F.cross_entropy(logits[0], label, reduction="none")
        return self.ramp(step) * (each * (sure >= self.threshold)).mean()
