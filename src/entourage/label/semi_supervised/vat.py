"""Virtual adversarial training (Miyato et al., 2018): the answer should not change where it is easiest to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.method import Batch, Method, MethodOptions
from entourage.label.semi_supervised.network import ImageNetwork

WEIGHT = 0.3
RADIUS = 0.003  # length of the perturbation as a share of the input's own length
PROBE = 1e-3  # and of the one with which the direction is looked for


class VirtualAdversarial(Method):
    """Divergence between the answers to an image and to its worst small perturbation.

    The variant that also makes answers sure (entropy minimisation) soon gives all images one class if labels are few.

    Args:
        network, examples, options: as for `Method`.
        radius: length of the perturbation as a share of the input's own.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        radius: float = RADIUS,
    ) -> None:
        super().__init__(network, examples, options)
        if not radius > 0:
            raise ValueError(f"radius is {radius}; expected a number above 0")
        self.radius = radius

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """A weak view and the same view moved in the direction that changes the answer most.

        What is moved is the network's input: the image, or the activations of a stem that is not trained.
        """
        clean = self.looks.weak(batch.unlabelled)
        return clean, clean + self.radius * _length(clean) * self._worst_direction(clean)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Kullback-Leibler divergence, with a weight that grows."""
        clean, moved = (F.log_softmax(answer, dim=1) for answer in logits)  # (b, m)
        divergence = F.kl_div(moved, clean.detach(), log_target=True, reduction="batchmean")
        return WEIGHT * self.ramp(step) * divergence

    def describe(self) -> dict[str, Any]:
        """With the radius."""
        return {**super().describe(), "radius": self.radius}

    def _worst_direction(self, inputs: Tensor) -> Tensor:
        """Unit perturbations, shape (b, c, h, w): one step of the power method on the divergence's curvature."""
        network = self.average.module  # in the network's place, whose statistics of batches must stay as they are
        with torch.enable_grad():  # in float32 whatever the run's format: 16 bits cannot tell the probe from nothing
            answer = F.log_softmax(network(inputs), dim=1).detach()
            direction = _unit(torch.randn_like(inputs)).requires_grad_()
            moved = F.log_softmax(network(inputs + PROBE * _length(inputs) * direction), dim=1)
            divergence = F.kl_div(moved, answer, log_target=True, reduction="sum")
            (gradient,) = torch.autograd.grad(divergence, direction)
        return _unit(gradient)


def _unit(inputs: Tensor) -> Tensor:
    return inputs / _length(inputs)


def _length(inputs: Tensor) -> Tensor:
    """The Euclidean length of each input, shape (b, 1, 1, 1), never 0."""
    length: Tensor = torch.linalg.vector_norm(inputs, dim=(1, 2, 3), keepdim=True)
    return length.clamp_min(1e-12)
