"""A body with a linear head: the network that is trained."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from entourage.backbones.norm import keep_statistics

MOMENTUM = 0.1  # of the statistics of batches


class ImageNetwork(nn.Module):
    """Inputs, images or a stem's activations, to logits.

    Args:
        body: inputs (b, ...) to features (b, dim).
        dim: length of a feature vector.
        classes: how many there are, m.

    Attributes:
        freeze_norm: whether batch normalisation keeps the statistics of its pretraining; a method of training says so.
    """

    def __init__(self, body: nn.Module, dim: int, classes: int) -> None:
        super().__init__()
        self.freeze_norm = False
        self.body = body
        self.head = nn.Linear(dim, classes)
        nn.init.zeros_(self.head.weight)  # all classes alike: nothing but the data decides, not even the seed
        nn.init.zeros_(self.head.bias)
        for layer in self.body.modules():
            # Pretrained networks average statistics over some hundred batches, which few steps never replace: what is
            # asked afterwards would be a network with new weights and the old photographs' statistics.
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.momentum = MOMENTUM
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, shape (b, m)."""
        logits: Tensor = self.head(self.body(inputs))
        return logits

    def train(self, mode: bool = True) -> Self:
        """As usual, but frozen statistics stay frozen."""
        super().train(mode)
        if self.freeze_norm:
            keep_statistics(self.body)
        return self
