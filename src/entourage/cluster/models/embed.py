"""Embedding networks, one a type of data: none for points, three convolutional blocks for images and spectrograms."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from entourage.cluster.models.options import ModelOptions

CHANNELS = (32, 64, 128)
OUTPUT = 256
IMAGE_GRID, SOUND_GRID = (4, 4), (16, 1)


class PointEmbedding(nn.Module):
    """Points as they are, or centred and scaled set by set, so that neither units nor origin matter.

    Args:
        columns: coordinates of a point, d.
        standardise: whether to centre and scale.
    """

    def __init__(self, columns: int, *, standardise: bool) -> None:
        super().__init__()
        self.width = columns
        self.standardise = standardise

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, d) to (b, n, d) in single precision; with `standardise` of mean 0 and mean square 1 over each set."""
        return (standardised(x) if self.standardise else x).float()


def standardised(x: Tensor) -> Tensor:
    """Sets of points, shape (..., n, d), with mean 0 and mean square 1, or all 0 where all points are the same.

    In the precision of x, whose digits should be enough for the origin: single precision has seven.
    """
    least = torch.finfo(x.dtype).tiny
    centred = x - x.mean(-2, keepdim=True)
    centred = centred / centred.abs().amax((-2, -1), keepdim=True).clamp_min(least)  # squares stay within range
    size = centred.square().mean((-2, -1), keepdim=True).sqrt()  # (..., 1, 1)
    return centred / size.clamp_min(least)


class ConvolutionalEmbedding(nn.Module):
    """Three blocks of convolution, LeakyReLU, batch norm and pooling, then two fully connected layers of 256.

    Args:
        shape: channels, height and width of an item.
        slope: of the LeakyReLUs.
        pooled: average the last maps before the first fully connected layer, images over a grid of 4 x 4, spectrograms
            (of one channel) over time but not over frequency. It then has a twentieth of the weights, and learns from
            fewer classes; the appendix speaks of no such thing.
    """

    width = OUTPUT

    def __init__(self, shape: tuple[int, ...], slope: float, *, pooled: bool) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 2 ** len(CHANNELS):
            raise ValueError(f"items are {height} x {width}; expected at least {2 ** len(CHANNELS)} on each side")
        blocks: list[nn.Module] = []
        for before, after in zip((channels, *CHANNELS), CHANNELS, strict=False):
            blocks += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.LeakyReLU(slope),
                nn.BatchNorm2d(after),
                nn.MaxPool2d(2),
            ]
        # Channels last: a GPU's batch norm takes a third of the time.
        self.blocks = nn.Sequential(*blocks).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        sides = tuple(side // 2 ** len(CHANNELS) for side in (height, width))
        if pooled:
            kept = SOUND_GRID if channels == 1 else IMAGE_GRID
            sides = tuple(min(pair) for pair in zip(kept, sides, strict=True))
            self.blocks.append(nn.AdaptiveAvgPool2d(sides))
        left = CHANNELS[-1] * math.prod(sides)
        self.head = nn.Sequential(
            nn.Linear(left, OUTPUT), nn.LeakyReLU(slope), nn.BatchNorm1d(OUTPUT), nn.Linear(OUTPUT, OUTPUT)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, c, h, w) to (b, n, 256)."""
        b, n = x.shape[:2]
        maps = self.blocks(x.flatten(0, 1).contiguous(memory_format=torch.channels_last))  # (b * n, 128, h / 8, w / 8)
        embedded: Tensor = self.head(maps.flatten(1))
        return embedded.reshape(b, n, -1)


Embedding = PointEmbedding | ConvolutionalEmbedding


def make_embedding(shape: tuple[int, ...], options: ModelOptions) -> Embedding:
    """The embedding network for items of a shape: (columns,) for points, (channels, height, width) for pictures."""
    if len(shape) == 1:
        return PointEmbedding(shape[0], standardise=options.standardise)
    if len(shape) == 3:
        return ConvolutionalEmbedding(shape, options.slope, pooled=options.pooled)
    raise ValueError(f"items have shape {shape}; expected (columns,) or (channels, height, width)")
