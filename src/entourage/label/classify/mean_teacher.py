"""Mean Teacher (Tarvainen and Valpola, 2017): answer like the average of one's own past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from entourage.label.classify.examples import Examples
from entourage.label.classify.method import Batch, Method, MethodOptions
from entourage.label.classify.network import ImageNetwork

WEIGHT = 10.0


class MeanTeacher(Method):
    """Squared difference between the network and its averaged weights on two views, with a weight that grows.

    Args:
        network, examples, options: as for `Method`.
        weight: of the difference, when it has grown.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        weight: float = WEIGHT,
    ) -> None:
        super().__init__(network, examples, options)
        if not weight >= 0:
            raise ValueError(f"weight is {weight}; expected 0 or more")
        self.weight = weight

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view; the teacher sees another."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Mean squared difference to the teacher's distributions."""
        answer = F.softmax(logits[0], dim=1)
        return self.weight * self.ramp(step) * F.mse_loss(answer, self.teacher(self.looks.weak(batch.unlabelled)))

    def describe(self) -> dict[str, Any]:
        """With the weight."""
        return {**super().describe(), "weight": self.weight}
