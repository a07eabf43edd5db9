"""The student network: a residual network for images of 32 pixels, or larger ones with a coarser first layer."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing

STUDENT = "student"  # name of the backbone in the file of a classifier
WIDTHS = (32, 64, 256, 256)  # channels of the first layer and of the three stages
STAGE_INPUT = 32  # side of the first stage's input, about: larger images have a first layer with a stride
FEATURE_SCALE = 1 / 8  # a smaller norm of the features, so that the first steps do not change the logits too much
CHANNEL_MEAN, CHANNEL_STD = 125.0, 63.0  # about those of photographs


class ResidualStage(nn.Module):
    """Halve an activation map and change its channels, then add a residual of two convolutions.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(_convolution(inputs, outputs), nn.MaxPool2d(2), nn.BatchNorm2d(outputs), nn.GELU())
        self.residual = nn.Sequential(
            _convolution(outputs, outputs),
            nn.BatchNorm2d(outputs),
            nn.GELU(),
            _convolution(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map activations (b, inputs, h, w) to (b, outputs, h / 2, w / 2)."""
        reduced: Tensor = self.reduce(x)
        return F.gelu(reduced + self.residual(reduced))


class StudentBody(nn.Module):
    """Normalised images to features, the scaled sum of mean and maximum over the last map.

    It has 3.2 million weights. Three stages halve the map; a first layer with a stride brings larger images to a map of
    about 32 by 32, so that the cost of an image hardly depends on its size.

    Args:
        side: side of the images in pixels, at least 16.
    """

    dim = WIDTHS[-1]

    def __init__(self, side: int = STAGE_INPUT) -> None:
        super().__init__()
        stride = max(1, side // STAGE_INPUT)
        first = nn.Conv2d(3, WIDTHS[0], kernel_size=stride + 2, stride=stride, padding=1, bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(WIDTHS[0]), nn.GELU())
        pairs = pairwise(WIDTHS)
        self.stages = nn.Sequential(*(ResidualStage(inputs, outputs) for inputs, outputs in pairs))

    def forward(self, images: Tensor) -> Tensor:
        """Compute features, shape (b, 256), of normalised images, shape (b, 3, side, side)."""
        x: Tensor = self.stages(self.stem(images))  # (b, 256, side / 8, side / 8) up to 63 pixels
        return FEATURE_SCALE * (x.mean(dim=(2, 3)) + x.amax(dim=(2, 3)))


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)


def student_backbone(side: int, seed: int = 0) -> Backbone:
    """Return an untrained student with its preprocessing.

    Args:
        side: side of the images in pixels.
        seed: seed of the random weights; torch's generators are unchanged.

    Returns:
        The network as a backbone with random weights, on the CPU.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = StudentBody(side)
    preprocessing = Preprocessing((side, side), (CHANNEL_MEAN,) * 3, (CHANNEL_STD,) * 3, crop=1.0)
    return Backbone(STUDENT, body.dim, body, preprocessing, weights="random")
