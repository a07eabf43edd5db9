"""The demo's section: a small network learns five digits with the Group Loss, and finds the five it has never seen.

`python -m entourage.demo.embed_demo FILE.svg` writes the picture alone.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone
from entourage.backbones.preprocessing import Preprocessing
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.represent import Rows, embed_rows
from entourage.embed.show import map_picture, retrieval_picture, tsne_positions
from entourage.embed.training.fit import TrainedEmbedding, train_embedding
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import EmbeddingData
from entourage.game.similarity import directions
from entourage.io.writing import write_text
from entourage.report.page import Block, Section
from entourage.seeds import seeded
from entourage.training.bank import PixelBank
from entourage.training.views import ViewOptions

SIDE, LEARNT = 16, 5  # pixels, and digits from 0 that are trained on
SHOWN = 12  # neighbours of each query in the picture, spread evenly over as many as there are of its class
RECIPE = Recipe(
    classes_per_batch=10,
    samples_per_class=8,
    size=SIDE,
    view=ViewOptions(area=(0.7, 1.0), aspect=4 / 3, flip=0.0, rotate=15.0, shear=0.2),
    head_rate=1.0,  # all of the network starts from nothing
    average=0.95,
    freeze_norm=False,  # there was no pretraining
    stages=(Stage(4, 1e-3),),
)


@dataclass(frozen=True, eq=False)
class Digits:
    """Handwritten digits, and the learnt ones once more in seven other positions, as classes of their own.

    Attributes:
        pixels: shape (n, 16, 16, 3).
        labels: the digit, plus ten for each position, shape (n,).
        training: rows of learnt digits in all positions.
        unseen: rows of digits that are not trained on.
    """

    pixels: NDArray[np.uint8]
    labels: Rows
    training: Rows
    unseen: Rows


class DigitBody(nn.Sequential):
    """Three convolutions: normalised images (b, 3, 16, 16) to features (b, 2048) that know where a stroke is."""

    dim = 128 * (SIDE // 4) ** 2

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for channels, width, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
            conv = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.Flatten())


def demo_section(recipe: Recipe = RECIPE) -> Section:
    """Trains for half a minute and compares what is found with what comparing pixels finds."""
    digits = read_digits()
    trained = train_digits(digits, recipe)
    truth = digits.labels[digits.unseen]
    ways = {"the pixels as they are": pixel_vectors(digits), "the Group Loss": _embedded(digits, trained)}
    measured = {name: retrieval_metrics(vectors, truth, (1,)) for name, vectors in ways.items()}
    rows: list[tuple[str, ...]] = [("compared by", "Recall@1", "MAP@R", "NMI of clusters")]
    for name, metrics in measured.items():
        rows.append((name, *(f"{metrics[metric]:.1%}" for metric in ("recall@1", "map@r", "nmi"))))
    lead = (
        f"A network of three layers has learnt the digits 0 to {LEARNT - 1}, upright, turned and mirrored, from"
        f" nothing, in half a minute. These are the digits {LEARNT} to 9, which it has never seen. On the left a query,"
        " then what is similar to it, from the nearest to the last that should be found; red frames are other digits."
    )
    pictures = [Block(title=f"Compared by {name}", figure=_picture(digits, vectors)) for name, vectors in ways.items()]
    map_ = Block(title="A map of the unseen digits by t-SNE", figure=_map(digits, ways["the Group Loss"]))
    return Section("embed: find digits never seen", lead, wide=[*pictures, Block(table=rows), map_])


def read_digits() -> Digits:
    """The digits that come with scikit-learn, larger and in RGB."""
    values, labels = load_digits(return_X_y=True)
    small = (values.reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    large = [Image.fromarray(one).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC) for one in small]
    pixels = np.stack([np.asarray(one) for one in large])  # (n, 16, 16, 3)
    learnt = np.flatnonzero(labels < LEARNT)
    positions = [_moved(pixels[learnt], position) for position in range(1, 8)]
    all_labels = np.concatenate([labels, *(labels[learnt] + 10 * position for position in range(1, 8))])
    training = np.concatenate([learnt, np.arange(len(labels), len(all_labels))])
    return Digits(np.concatenate([pixels, *positions]), all_labels, training, np.flatnonzero(labels >= LEARNT))


def train_digits(digits: Digits, recipe: Recipe = RECIPE) -> TrainedEmbedding:
    """A network that has learnt the training digits."""
    with seeded(recipe.seed):
        body = DigitBody().eval()
    preprocessing = Preprocessing((SIDE, SIDE), (127.0,) * 3, (128.0,) * 3, crop=1.0)
    backbone = Backbone("digits", DigitBody.dim, body, preprocessing, weights="random")
    data = EmbeddingData(PixelBank(digits.pixels), digits.labels, digits.training)
    return train_embedding(backbone, data, recipe, device="cpu", progress=False)


def pixel_vectors(digits: Digits) -> Tensor:
    """The unseen digits as rows of pixels of length 1, shape (n, 256)."""
    grey = digits.pixels[digits.unseen, :, :, 0].reshape(len(digits.unseen), -1)  # (n, 256)
    return directions(torch.from_numpy(grey).float())


def _embedded(digits: Digits, trained: TrainedEmbedding) -> Tensor:
    bank = PixelBank(digits.pixels)
    return directions(embed_rows(trained.network, bank, digits.unseen, trained.preprocessing))


def _moved(pixels: NDArray[np.uint8], position: int) -> NDArray[np.uint8]:
    """Turned by quarters, and mirrored from the fourth position on."""
    turned = np.rot90(pixels, position % 4, axes=(1, 2))
    return turned[:, :, ::-1] if position >= 4 else turned


def _picture(digits: Digits, vectors: Tensor) -> str:
    """A typical query of each unseen digit with neighbours of evenly spread ranks."""
    truth = digits.labels[digits.unseen]
    queries = [_typical(pixel_vectors(digits), np.flatnonzero(truth == digit)) for digit in np.unique(truth)]
    cosines = vectors[queries] @ vectors.T  # (queries, n)
    cosines[range(len(queries)), queries] = -torch.inf
    ranks = np.linspace(0, np.bincount(truth)[truth[queries]].min() - 2, SHOWN).round().astype(int)
    found = cosines.argsort(dim=1, descending=True).numpy()[:, ranks]
    return retrieval_picture(lambda place: _image(digits, place), queries, found, truth)


def _typical(vectors: Tensor, members: Rows) -> int:
    """The member that is nearest to the mean of all."""
    some = vectors[members]
    return int(members[int((some @ some.mean(dim=0)).argmax())])


def _map(digits: Digits, vectors: Tensor) -> str:
    positions = tsne_positions(vectors.numpy())
    return map_picture(lambda place: _image(digits, place), positions, digits.labels[digits.unseen], cells=30)


def _image(digits: Digits, place: int) -> Image.Image:
    """A digit in dark on light, large enough to be sharp."""
    ink = 255 - digits.pixels[digits.unseen[place]]
    return Image.fromarray(ink).resize((6 * SIDE, 6 * SIDE), Image.Resampling.BICUBIC)


def main() -> None:
    """Writes the retrieval picture of a trained network into the file that is told as the only argument."""
    parser = argparse.ArgumentParser(prog="python -m entourage.demo.embed_demo", description=main.__doc__)
    parser.add_argument("file", metavar="FILE.svg", type=Path)
    file = parser.parse_args().file  # before half a minute of training
    digits = read_digits()
    figure = _picture(digits, _embedded(digits, train_digits(digits)))
    write_text(file, figure + "\n")


if __name__ == "__main__":
    main()
