"""Small networks and images for tests of training, and plain numbers in place of images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import Batch
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels
from entourage.label.semi_supervised.views import LiveViews, ViewOptions

SIDE = 12
COLOURS = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200]])


class ToyStem(nn.Module):
    """Images to activations (b, 4, 6, 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.conv(images).relu()
        return out


class ToyTail(nn.Module):
    """Activations to eight features, with batch normalisation."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, activations: Tensor) -> Tensor:
        out: Tensor = self.layers(activations).mean(dim=(2, 3))  # (b, 8)
        return out


def network(classes: int = 3, channels: int = 3) -> ImageNetwork:
    """A body with batch normalisation and a head; the weights do not depend on the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ImageNetwork(ToyTail(channels), 8, classes)


def backbone(side: int = SIDE) -> Backbone:
    """The body of `network` as a backbone."""
    return Backbone("toy", 8, network().body.eval(), preprocessing(side), "toy weights")


def stem() -> ToyStem:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ToyStem()


def images(each: int = 10, classes: int = 3, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images with the colour of their class, random brightness and noise, and the classes."""
    rng = np.random.default_rng(seed)
    truth = np.tile(np.arange(classes), each)
    pixels = COLOURS[truth][:, None, None] * rng.uniform(0.6, 1.1, (len(truth), 1, 1, 1))
    pixels = pixels + rng.normal(0, 10, (len(truth), SIDE, SIDE, 3))
    return pixels.clip(0, 255).astype(np.uint8), truth


def preprocessing(side: int = SIDE) -> Preprocessing:
    return Preprocessing((side, side), (127.0,) * 3, (128.0,) * 3, crop=1.0)


def live(side: int = SIDE, options: ViewOptions | None = None) -> LiveViews:
    """Live views of all images."""
    return LiveViews(images()[0], preprocessing(side), options)


def examples(
    labels: int = 2, options: ViewOptions | None = None, **image_options: int
) -> tuple[SemiSupervisedData, NDArray[np.int64]]:
    """Return live views with a few labels of each class, and the true classes."""
    pixels, truth = images(**image_options)
    classes = int(truth.max()) + 1
    codes = np.where(np.arange(len(truth)) < labels * classes, truth, -1)
    return SemiSupervisedData(LiveViews(pixels, preprocessing(), options), codes, classes), truth


class NumberViews:
    """Views of four numbers in place of an image: weak views add 0.5, strong views change the sign."""

    flip = True

    def __init__(self, count: int = 8) -> None:
        generator = torch.Generator().manual_seed(1)
        self.values = torch.randn(count, 4, 1, 1, generator=generator, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.values)

    def move(self, device: torch.device) -> None:
        assert device.type == "cpu"

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        return self.values[rows].flip(1) if flipped else self.values[rows]

    def weak(self, rows: Tensor) -> Tensor:
        return self.values[rows] + 0.5

    def strong(self, rows: Tensor) -> Tensor:
        return -self.values[rows]

    def digest(self) -> str:
        return str(len(self))


def numbers(classes: int = 3, count: int = 8) -> SemiSupervisedData:
    """Numbers in place of images, the first of each class with a label."""
    codes = np.full(count, -1)
    codes[:classes] = np.arange(classes)
    return SemiSupervisedData(NumberViews(count), codes, classes)


def linear(classes: int = 3, scale: float = 1.0) -> ImageNetwork:
    """A network for `numbers`, in float64: logits are W x + b."""
    network = ImageNetwork(nn.Flatten(), 4, classes).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        network.head.weight.copy_(scale * torch.randn(classes, 4, generator=generator, dtype=torch.float64))
        network.head.bias.copy_(torch.randn(classes, generator=generator, dtype=torch.float64))
    return network


def batch(examples: SemiSupervisedData, labelled: list[int], unlabelled: list[int]) -> Batch:
    codes = torch.from_numpy(examples.codes[labelled])
    return Batch(torch.tensor(labelled), codes, torch.tensor(unlabelled, dtype=torch.int64))


def pseudo_labels(codes: list[int], confidence: list[float], classes: int = 3) -> PseudoLabels:
    """Pseudo-labels whose distributions have 0.8 at the label."""
    label = np.array(codes)
    distributions = np.full((len(codes), classes), 0.2 / (classes - 1))
    distributions[np.arange(len(codes)), label] = 0.8
    distributions[label < 0] = 1 / classes
    return PseudoLabels(label, distributions, np.array(confidence))
