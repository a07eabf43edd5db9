"""Batch normalisation in networks that are trained further."""

from __future__ import annotations

from torch import nn


def keep_statistics(module: nn.Module) -> None:
    """Has batch normalisation go by the statistics it has and keep them, also in training: `train()` undoes it.

    Statistics of batches of few classes, or of few images, say little of what a network will be asked about.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
