"""The plain network: trained on the labelled images alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entourage.label.semi_supervised.method import Batch, Method, Rows


class Supervised(Method):
    """Cross-entropy on the labelled images; the others are not even loaded ("CNN" in the thesis' tables)."""

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """As many steps as the other methods make, of labelled images only."""
        return [(labelled, rows[:0]) for labelled, rows in super().plan(epoch)]

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """None."""
        return []

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Nothing to disagree about."""
        return torch.zeros((), device=batch.codes.device)
