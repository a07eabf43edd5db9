"""The Pi-model (Laine and Aila, 2017): two views of an image should be answered alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.method import Batch
from entourage.label.semi_supervised.told import WeightedMethod


class PiModel(WeightedMethod):
    """Squared difference between the network's answers to two views, with a weight that grows."""

    usual = 0.1  # more, and all images are soon answered alike: its authors let it fall with the share of labels

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """Two weak views."""
        return self.looks.weak(batch.unlabelled), self.looks.weak(batch.unlabelled)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Mean squared difference of the two distributions."""
        one, other = (F.softmax(answer, dim=1) for answer in logits)
        return self.weight * self.ramp(step) * F.mse_loss(one, other)
