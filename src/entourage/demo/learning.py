"""The demo's section: handwritten digits, one label a class, the game beside scikit-learn's label spreading.

The demo's section: a small network learns five digits with the Group Loss, and finds the five it has never seen.

`python -m entourage.demo.learning FILE.svg` writes the picture alone.

The demo's section: 2D sets nobody has seen, clustered by the network beside k-means and DBSCAN.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.semi_supervised import LabelSpreading as PeerSpreading
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.cluster.estimator import LearnedClustering
from entourage.cluster.evaluation import dbscan, k_means_silhouette, mean_scores, score
from entourage.cluster.sampling.points import PointSampler
from entourage.compute import fork_rng
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import Rows, embed_rows
from entourage.embed.report import draw_map, draw_retrieval, tsne_positions
from entourage.embed.training.fit import TrainedEmbedding, train_embedding
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import EmbeddingData
from entourage.game.similarity import normalize_rows
from entourage.io.files import write_text
from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction
from entourage.report.figures import INK, figure_style, to_svg
from entourage.report.page import Block, Section
from entourage.training.images import AugmentationOptions, ImageBank

Labels = NDArray[np.int64]

DRAWS = 10
# The best of alpha in {.2, .8, .99} and k in {7, 15} for the peer: see benchmarks/label_accuracy.py.
PEER = {"kernel": "knn", "n_neighbors": 15, "alpha": 0.8, "max_iter": 1000}


def label_section() -> Section:
    """Labels 1,797 digits from ten labels, ten times over, and draws the time in the middle."""
    X, truth = load_digits(return_X_y=True)
    games, peers = [], []
    for seed in range(DRAWS):
        y = one_label_a_class(truth, seed)
        games.append(GraphTransduction().fit(X, y).transduction_.astype(np.int64))
        peers.append(PeerSpreading(**PEER).fit(X, y).transduction_)
    ours, theirs = (np.array([np.mean(f == truth) for f in found]) for found in (games, peers))
    typical = int(np.argsort(ours)[DRAWS // 2])
    given = one_label_a_class(truth, typical) >= 0
    figure = _label_picture(TSNE(random_state=0).fit_transform(X), truth, given, peers[typical], games[typical])
    rows = [
        ("method", "accuracy, mean of ten draws of labels", "spread"),
        ("scikit-learn's label spreading, best setting", f"{theirs.mean():.1%}", f"{theirs.std():.1%}"),
        ("the game, default setting", f"{ours.mean():.1%}", f"{ours.std():.1%}"),
    ]
    lead = (
        f"{len(truth)} handwritten digits, of which ten are labelled, one of each class. The picture lays similar "
        "digits side by side, for the draw of labels that is in the middle; colours are the labels that each method "
        "found, and crosses are mistakes."
    )
    return Section("label: ten labels for all digits", lead, wide=[Block(figure=figure), Block(table=rows)])


def one_label_a_class(truth: Labels, seed: int) -> Labels:
    """The truth of one random member of each class and -1 for all others, shape (n,)."""
    generator = np.random.default_rng(seed)
    y = np.full(len(truth), -1)
    for label in np.unique(truth):
        y[generator.choice(np.flatnonzero(truth == label))] = label
    return y


def _label_picture(map_: Floats, truth: Labels, given: NDArray[np.bool_], peer: Labels, game: Labels) -> str:
    with figure_style():
        figure = Figure(figsize=(11, 4))
        left, middle, right = figure.subplots(1, 3)
        left.scatter(map_[~given, 0], map_[~given, 1], s=3, color="#d5dce1", linewidths=0, rasterized=True)
        for point, label in zip(map_[given], truth[given], strict=True):
            left.text(*point, str(label), ha="center", va="center", fontsize=13, fontweight="bold")
        left.set_title("what is given: ten labels")
        _found(middle, map_, truth, peer, "label spreading")
        _found(right, map_, truth, game, "the game")
        for axes in (left, middle, right):
            axes.set_axis_off()
        return to_svg(figure)


def _found(axes: Axes, map_: Floats, truth: Labels, found: Labels, name: str) -> None:
    colours = ListedColormap([f"C{i}" for i in range(10)])
    x, y = map_.T
    axes.scatter(x, y, c=found, cmap=colours, vmin=0, vmax=9, s=4, linewidths=0, rasterized=True)
    wrong = found != truth
    axes.scatter(x[wrong], y[wrong], marker="x", s=10, linewidths=0.7, color=INK, rasterized=True)
    axes.set_title(f"{name}: {np.mean(~wrong):.1%} right")


SIDE, N_TRAINED = 16, 5  # pixels, and digits from 0 that are trained on
SHOWN_NEIGHBORS = 12  # neighbours of each query in the picture, spread evenly over as many as there are of its class
RECIPE = Recipe(
    classes_per_batch=10,
    samples_per_class=8,
    size=SIDE,
    view=AugmentationOptions(area=(0.7, 1.0), aspect=4 / 3, flip=0.0, rotate=15.0, shear=0.2),
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


def embed_section(recipe: Recipe = RECIPE) -> Section:
    """Trains for half a minute and compares what is found with what comparing pixels finds."""
    digits = read_digits()
    trained = train_digits(digits, recipe)
    truth = digits.labels[digits.unseen]
    embeddings = {"the pixels as they are": pixel_vectors(digits), "the Group Loss": _embedded(digits, trained)}
    measured = {name: retrieval_metrics(vectors, truth, (1,)) for name, vectors in embeddings.items()}
    rows: list[tuple[str, ...]] = [("compared by", "Recall@1", "MAP@R", "NMI of clusters")]
    for name, metrics in measured.items():
        rows.append((name, *(f"{metrics[metric]:.1%}" for metric in ("recall@1", "map@r", "nmi"))))
    lead = (
        f"A network of three layers has learnt the digits 0 to {N_TRAINED - 1}, upright, turned and mirrored, from"
        f" nothing, in half a minute. These are the digits {N_TRAINED} to 9, which it has never seen. On the left"
        " a query, then what is similar to it, from the nearest to the last that should be found; red frames are other"
        " digits."
    )
    pictures = [
        Block(title=f"Compared by {name}", figure=_embed_picture(digits, vectors))
        for name, vectors in embeddings.items()
    ]
    map_ = Block(title="A map of the unseen digits by t-SNE", figure=_map(digits, embeddings["the Group Loss"]))
    return Section("embed: find digits never seen", lead, wide=[*pictures, Block(table=rows), map_])


def read_digits() -> Digits:
    """The digits that come with scikit-learn, larger and in RGB."""
    values, labels = load_digits(return_X_y=True)
    small = (values.reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    large = [Image.fromarray(one).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC) for one in small]
    pixels = np.stack([np.asarray(one) for one in large])  # (n, 16, 16, 3)
    trained_rows = np.flatnonzero(labels < N_TRAINED)
    positions = [_rotate_and_flip(pixels[trained_rows], position) for position in range(1, 8)]
    all_labels = np.concatenate([labels, *(labels[trained_rows] + 10 * position for position in range(1, 8))])
    training = np.concatenate([trained_rows, np.arange(len(labels), len(all_labels))])
    return Digits(np.concatenate([pixels, *positions]), all_labels, training, np.flatnonzero(labels >= N_TRAINED))


def train_digits(digits: Digits, recipe: Recipe = RECIPE) -> TrainedEmbedding:
    """A network that has learnt the training digits."""
    with fork_rng(recipe.seed):
        body = DigitBody().eval()
    preprocessing = Preprocessing((SIDE, SIDE), (127.0,) * 3, (128.0,) * 3, crop=1.0)
    backbone = Backbone("digits", DigitBody.dim, body, preprocessing, weights="random")
    data = EmbeddingData(ImageBank(digits.pixels), digits.labels, digits.training)
    return train_embedding(backbone, data, recipe, device="cpu", progress=False)


def pixel_vectors(digits: Digits) -> Tensor:
    """The unseen digits as rows of pixels of length 1, shape (n, 256)."""
    grey = digits.pixels[digits.unseen, :, :, 0].reshape(len(digits.unseen), -1)  # (n, 256)
    return normalize_rows(torch.from_numpy(grey).float())


def _embedded(digits: Digits, trained: TrainedEmbedding) -> Tensor:
    bank = ImageBank(digits.pixels)
    return normalize_rows(embed_rows(trained.network, bank, digits.unseen, trained.preprocessing))


def _rotate_and_flip(pixels: NDArray[np.uint8], position: int) -> NDArray[np.uint8]:
    """Turned by quarters, and mirrored from the fourth position on."""
    rotated = np.rot90(pixels, position % 4, axes=(1, 2))
    return rotated[:, :, ::-1] if position >= 4 else rotated


def _embed_picture(digits: Digits, vectors: Tensor) -> str:
    """A typical query of each unseen digit with neighbours of evenly spread ranks."""
    truth = digits.labels[digits.unseen]
    queries = [_central_member(pixel_vectors(digits), np.flatnonzero(truth == digit)) for digit in np.unique(truth)]
    cosines = vectors[queries] @ vectors.T  # (queries, n)
    cosines[range(len(queries)), queries] = -torch.inf
    ranks = np.linspace(0, np.bincount(truth)[truth[queries]].min() - 2, SHOWN_NEIGHBORS).round().astype(int)
    neighbors = cosines.argsort(dim=1, descending=True).numpy()[:, ranks]
    return draw_retrieval(lambda index: _image(digits, index), queries, neighbors, truth)


def _central_member(vectors: Tensor, members: Rows) -> int:
    """The member that is nearest to the mean of all."""
    rows = vectors[members]
    return int(members[int((rows @ rows.mean(dim=0)).argmax())])


def _map(digits: Digits, vectors: Tensor) -> str:
    positions = tsne_positions(vectors.numpy())
    return draw_map(lambda index: _image(digits, index), positions, digits.labels[digits.unseen], cells=30)


def _image(digits: Digits, index: int) -> Image.Image:
    """A digit in dark on light, large enough to be sharp."""
    ink = 255 - digits.pixels[digits.unseen[index]]
    return Image.fromarray(ink).resize((6 * SIDE, 6 * SIDE), Image.Resampling.BICUBIC)


def main() -> None:
    """Writes the retrieval picture of a trained network into the file that is told as the only argument."""
    parser = argparse.ArgumentParser(prog="python -m entourage.demo.learning", description=main.__doc__)
    parser.add_argument("file", metavar="FILE.svg", type=Path)
    file = parser.parse_args().file  # before half a minute of training
    digits = read_digits()
    figure = _embed_picture(digits, _embedded(digits, train_digits(digits)))
    write_text(file, figure + "\n")


if __name__ == "__main__":
    main()


SETS, SHOWN_SETS, N, K = 40, 6, 150, 5
SEED = 20_180_919
# The best setting on 100 sets of this size: see experiments/cluster_points.py for how it is chosen.
DBSCAN_RADIUS, DBSCAN_MIN_SAMPLES = 0.1, 2
Points = NDArray[np.float64]

Method = Callable[[Points], Labels]


def cluster_section() -> Section:
    """Clusters forty sets by three methods and draws the first six."""
    episode = PointSampler(K).draw(SETS, N, torch.Generator().manual_seed(SEED))
    labels_true = np.asarray(episode.labels)
    points = episode.x.double().numpy()
    network = LearnedClustering.load("points", device="cpu")
    methods: dict[str, Method] = {
        "k-means, k by silhouette": lambda X: k_means_silhouette(X, K).astype(np.int64),
        "DBSCAN": lambda X: dbscan(X, DBSCAN_RADIUS, DBSCAN_MIN_SAMPLES).astype(np.int64),
        "the network": network.predict,
    }
    predictions = {name: [method(X) for X in points] for name, method in methods.items()}
    rows = [("method", "misclassified", "NMI", "right number of clusters")]
    for name, labels_pred in predictions.items():
        mean = mean_scores([score(t, p) for t, p in zip(labels_true, labels_pred, strict=True)])
        rows.append((name, f"{mean.mr:.1%}", f"{mean.nmi:.3f}", f"{mean.k_right:.0%}"))
    lead = (
        f"{SETS} sets of {N} points that nobody has seen, of 1 to {K} clusters whose number nobody was told. A network "
        "that has learned from other sets what a cluster is needs no shape and no setting; colours are what each "
        f"method found. Shown are the first {SHOWN_SETS}."
    )
    shown = {name: labels_pred[:SHOWN_SETS] for name, labels_pred in predictions.items()}
    figure = cluster_picture(points[:SHOWN_SETS], labels_true[:SHOWN_SETS], shown)
    return Section("cluster: groups of any shape, and how many", lead, wide=[Block(figure=figure), Block(table=rows)])


def cluster_picture(points: Points, labels_true: Labels, predictions: dict[str, list[Labels]]) -> str:
    """A grid: a column a set, a row a method, each with the share of misclassified points."""
    with figure_style():
        figure = Figure(figsize=(11, 2 * len(predictions)))
        grid = figure.subplots(len(predictions), len(points), squeeze=False)
        for row, (name, labels_pred) in zip(grid, predictions.items(), strict=True):
            for axes, X, expected, predicted in zip(row, points, labels_true, labels_pred, strict=True):
                _draw_clusters(axes, X, predicted, score(expected, predicted).mr)
            row[0].text(-0.1, 0.5, name, rotation=90, ha="center", va="center", transform=row[0].transAxes)
        return to_svg(figure)


def _draw_clusters(axes: Axes, X: Points, labels: Labels, error: float) -> None:
    colours = [f"C{label % 10}" if label >= 0 else "#c4ccd3" for label in labels]  # grey is DBSCAN's noise
    axes.scatter(X[:, 0], X[:, 1], c=colours, s=4, linewidths=0, rasterized=True)
    axes.set_title("all right" if error == 0 else f"{error:.1%} wrong", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
