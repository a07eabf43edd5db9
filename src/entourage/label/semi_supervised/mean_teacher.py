"""Mean Teacher (Tarvainen and Valpola, 2017): answer like the average of one's own past."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.method import Batch
from entourage.label.semi_supervised.told import WeightedMethod


class MeanTeacher(WeightedMethod):
    """Squared difference between the network and its averaged weights on two views, with a weight that grows."""

    usual = 10.0

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view; the teacher sees another."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Mean squared difference to the teacher's distributions."""
        answer = F.softmax(logits[0], dim=1)
        return self.weight * self.ramp(step) * F.mse_loss(answer, self.teacher(self.looks.weak(batch.unlabelled)))
