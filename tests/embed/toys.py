"""Small network and small images of many classes, for tests of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing

SIDE = 20


class ToyBody(nn.Module):
    """Network from images to eight features, with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2)
        )

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layers(images).flatten(2).mean(dim=2)  # (b, 8)
        return out


def index_folder(run: Path) -> Path:
    """Return the folder of the only index of a run."""
    (path,) = run.glob("index-*/")
    return path


def backbone(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    preprocessing = Preprocessing((SIDE, SIDE), (127.0,) * 3, (128.0,) * 3, crop=1.0)
    return Backbone("toy", 8, ToyBody().eval(), preprocessing, "toy weights")


def images(classes: int = 8, each: int = 12, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images whose class determines their colour; brightness varies more, independently of the class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    colours = rng.uniform(-40, 40, size=(classes, 3))
    pixels = 128 + colours[labels][:, None, None, :] + rng.uniform(-60, 60, size=(len(labels), 1, 1, 1))
    pixels = pixels + rng.normal(scale=8, size=(len(labels), SIDE, SIDE, 3))
    return pixels.clip(0, 255).astype(np.uint8), labels
