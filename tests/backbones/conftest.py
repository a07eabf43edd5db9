from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing


class MeanColour(nn.Module):
    """Network that returns the mean of each channel and counts the images."""

    def __init__(self) -> None:
        super().__init__()
        self.n_images = 0

    def forward(self, images: Tensor) -> Tensor:
        self.n_images += len(images)
        return images.mean(dim=(2, 3))


@pytest.fixture
def network() -> MeanColour:
    return MeanColour()


@pytest.fixture
def backbone(network: MeanColour) -> Backbone:
    preprocessing = Preprocessing(size=(8, 8), mean=(0.0,) * 3, std=(255.0,) * 3)
    return Backbone("mean-colour", 3, network.eval(), preprocessing, weights="none")


@pytest.fixture
def make_images(tmp_path: Path) -> Callable[[int], list[Path]]:
    """Return a function that writes images of one colour each; the colours differ."""

    def make(count: int) -> list[Path]:
        folder = tmp_path / "images"
        folder.mkdir(exist_ok=True)
        paths = [folder / f"{index:03}.png" for index in range(count)]
        for index, path in enumerate(paths):
            Image.new("RGB", (12, 10), colour_of(index)).save(path)
        return paths

    return make


def colour_of(index: int) -> tuple[int, int, int]:
    return (index % 256, 255 - index % 256, 128)


@pytest.fixture
def expected_features() -> Callable[[list[int]], np.ndarray]:
    """Return a function that computes the features of the test network for the images with some indices."""
    return lambda indices: np.array([colour_of(index) for index in indices], dtype=np.float32).reshape(-1, 3) / 255.0
