"""Sections of the demo for `label`, `embed` and `cluster`.

- label: handwritten digits with one label per class; the graph transduction game and scikit-learn's label spreading.
- embed: a small network is trained on five digits with the Group Loss and evaluated on the other five. `python -m
  entourage.demo.learning FILE.svg` writes the figure of this section only.
- cluster: sets of points clustered by the included network, by k-means and by DBSCAN.
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
# Best of alpha in {.2, .8, .99} and k in {7, 15} for scikit-learn's method: see benchmarks/label_accuracy.py.
PEER = {"kernel": "knn", "n_neighbors": 15, "alpha": 0.8, "max_iter": 1000}


def label_section() -> Section:
    """Label 1,797 digits from ten labels, for ten random choices of the labels; draw the result of median accuracy."""
    X, truth = load_digits(return_X_y=True)
    games, peers = [], []
    for seed in range(DRAWS):
        y = one_label_per_class(truth, seed)
        games.append(GraphTransduction().fit(X, y).transduction_.astype(np.int64))
        peers.append(PeerSpreading(**PEER).fit(X, y).transduction_)
    ours, theirs = (np.array([np.mean(y == truth) for y in predictions]) for predictions in (games, peers))
    median = int(np.argsort(ours)[DRAWS // 2])
    labelled = one_label_per_class(truth, median) >= 0
    figure = _label_picture(TSNE(random_state=0).fit_transform(X), truth, labelled, peers[median], games[median])
    rows = [
        ("method", "accuracy, mean over ten samples of labels", "standard deviation"),
        ("scikit-learn's label spreading, best options", f"{theirs.mean():.1%}", f"{theirs.std():.1%}"),
        ("the game, default options", f"{ours.mean():.1%}", f"{ours.std():.1%}"),
    ]
    lead = (
        f"{len(truth)} handwritten digits, of which ten are labelled, one of each class. In the t-SNE map, similar "
        "digits are close to each other; it shows the sample of labels with the median accuracy. Colours are the "
        "predicted labels, and crosses are errors."
    )
    return Section("label: ten labels for all digits", lead, wide=[Block(figure=figure), Block(table=rows)])


def one_label_per_class(truth: Labels, seed: int) -> Labels:
    """Return the true label of one random item of each class and -1 for all other items, shape (n,)."""
    generator = np.random.default_rng(seed)
    y = np.full(len(truth), -1)
    for label in np.unique(truth):
        y[generator.choice(np.flatnonzero(truth == label))] = label
    return y


def _label_picture(map_: Floats, truth: Labels, labelled: NDArray[np.bool_], peer: Labels, game: Labels) -> str:
    with figure_style():
        figure = Figure(figsize=(11, 4))
        left, middle, right = figure.subplots(1, 3)
        left.scatter(map_[~labelled, 0], map_[~labelled, 1], s=3, color="#d5dce1", linewidths=0, rasterized=True)
        for point, label in zip(map_[labelled], truth[labelled], strict=True):
            left.text(*point, str(label), ha="center", va="center", fontsize=13, fontweight="bold")
        left.set_title("the ten known labels")
        _draw_labels(middle, map_, truth, peer, "label spreading")
        _draw_labels(right, map_, truth, game, "the game")
        for axes in (left, middle, right):
            axes.set_axis_off()
        return to_svg(figure)


def _draw_labels(axes: Axes, map_: Floats, truth: Labels, predicted: Labels, name: str) -> None:
    colours = ListedColormap([f"C{i}" for i in range(10)])
    x, y = map_.T
    axes.scatter(x, y, c=predicted, cmap=colours, vmin=0, vmax=9, s=4, linewidths=0, rasterized=True)
    wrong = predicted != truth
    axes.scatter(x[wrong], y[wrong], marker="x", s=10, linewidths=0.7, color=INK, rasterized=True)
    axes.set_title(f"{name}: {np.mean(~wrong):.1%} right")


SIDE, N_TRAINED = 16, 5  # side of the images in pixels; the digits from 0 to N_TRAINED - 1 are for training
SHOWN_NEIGHBORS = 12  # neighbours of each query in the figure, at evenly spread ranks up to the size of its class
RECIPE = Recipe(
    classes_per_batch=10,
    samples_per_class=8,
    size=SIDE,
    view=AugmentationOptions(area=(0.7, 1.0), aspect=4 / 3, flip=0.0, rotate=15.0, shear=0.2),
    head_rate=1.0,  # no part of the network is pretrained
    average=0.95,
    freeze_norm=False,  # without pretraining, there are no statistics to keep
    stages=(Stage(4, 1e-3),),
)


@dataclass(frozen=True, eq=False)
class Digits:
    """Handwritten digits; rotated and mirrored training digits are added as separate classes.

    Attributes:
        pixels: shape (n, 16, 16, 3).
        labels: the digit plus 10 times the position (0: upright; 1 to 7: rotated or mirrored), shape (n,).
        training: indices of the training digits in all positions.
        unseen: indices of the digits that are not used for training.
    """

    pixels: NDArray[np.uint8]
    labels: Rows
    training: Rows
    unseen: Rows


class DigitBody(nn.Sequential):
    """Three convolutions without pooling: normalised images (b, 3, 16, 16) to features (b, 2048)."""

    dim = 128 * (SIDE // 4) ** 2

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for channels, width, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
            conv = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.Flatten())


def embed_section(recipe: Recipe = RECIPE) -> Section:
    """Train a network for half a minute and compare retrieval by its embeddings with retrieval by pixels."""
    digits = read_digits()
    trained = train_digits(digits, recipe)
    truth = digits.labels[digits.unseen]
    embeddings = {"pixels": pixel_vectors(digits), "Group Loss": _embedded(digits, trained)}
    measured = {name: retrieval_metrics(vectors, truth, (1,)) for name, vectors in embeddings.items()}
    rows: list[tuple[str, ...]] = [("embedding", "Recall@1", "MAP@R", "NMI of clusters")]
    for name, metrics in measured.items():
        rows.append((name, *(f"{metrics[metric]:.1%}" for metric in ("recall@1", "map@r", "nmi"))))
    lead = (
        f"A network of three layers was trained from scratch for half a minute on the digits 0 to {N_TRAINED - 1},"
        f" upright, rotated and mirrored. The figures show the digits {N_TRAINED} to 9, on which it was not trained: on"
        " the left a query, then neighbours at evenly spread ranks, from the nearest to the last that is of the same"
        " digit in a perfect ranking. Red frames mark other digits."
    )
    pictures = [
        Block(title=f"Neighbours by {name}", figure=_embed_picture(digits, vectors))
        for name, vectors in embeddings.items()
    ]
    map_ = Block(title="t-SNE map of the unseen digits", figure=_map(digits, embeddings["Group Loss"]))
    return Section("embed: retrieval of unseen digits", lead, wide=[*pictures, Block(table=rows), map_])


def read_digits() -> Digits:
    """Load scikit-learn's handwritten digits, enlarged and converted to RGB."""
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
    """Train an embedding network on the training digits, on the CPU."""
    with fork_rng(recipe.seed):
        body = DigitBody().eval()
    preprocessing = Preprocessing((SIDE, SIDE), (127.0,) * 3, (128.0,) * 3, crop=1.0)
    backbone = Backbone("digits", DigitBody.dim, body, preprocessing, weights="random")
    data = EmbeddingData(ImageBank(digits.pixels), digits.labels, digits.training)
    return train_embedding(backbone, data, recipe, device="cpu", progress=False)


def pixel_vectors(digits: Digits) -> Tensor:
    """Return the pixels of the unseen digits as unit vectors, shape (n, 256)."""
    grey = digits.pixels[digits.unseen, :, :, 0].reshape(len(digits.unseen), -1)  # (n, 256)
    return normalize_rows(torch.from_numpy(grey).float())


def _embedded(digits: Digits, trained: TrainedEmbedding) -> Tensor:
    bank = ImageBank(digits.pixels)
    return normalize_rows(embed_rows(trained.network, bank, digits.unseen, trained.preprocessing))


def _rotate_and_flip(pixels: NDArray[np.uint8], position: int) -> NDArray[np.uint8]:
    """Rotate images by `position` quarter turns; for positions from 4 on, mirror them as well."""
    rotated = np.rot90(pixels, position % 4, axes=(1, 2))
    return rotated[:, :, ::-1] if position >= 4 else rotated


def _embed_picture(digits: Digits, vectors: Tensor) -> str:
    """Draw a typical query of each unseen digit with neighbours at evenly spread ranks."""
    truth = digits.labels[digits.unseen]
    queries = [_central_member(pixel_vectors(digits), np.flatnonzero(truth == digit)) for digit in np.unique(truth)]
    cosines = vectors[queries] @ vectors.T  # (queries, n)
    cosines[range(len(queries)), queries] = -torch.inf
    ranks = np.linspace(0, np.bincount(truth)[truth[queries]].min() - 2, SHOWN_NEIGHBORS).round().astype(int)
    neighbors = cosines.argsort(dim=1, descending=True).numpy()[:, ranks]
    return draw_retrieval(lambda index: _image(digits, index), queries, neighbors, truth)


def _central_member(vectors: Tensor, members: Rows) -> int:
    """Return the member that is most similar to the mean of all members, by inner product."""
    rows = vectors[members]
    return int(members[int((rows @ rows.mean(dim=0)).argmax())])


def _map(digits: Digits, vectors: Tensor) -> str:
    positions = tsne_positions(vectors.numpy())
    return draw_map(lambda index: _image(digits, index), positions, digits.labels[digits.unseen], cells=30)


def _image(digits: Digits, index: int) -> Image.Image:
    """Return an enlarged picture of a digit, dark on a light background."""
    ink = 255 - digits.pixels[digits.unseen[index]]
    return Image.fromarray(ink).resize((6 * SIDE, 6 * SIDE), Image.Resampling.BICUBIC)


def main() -> None:
    """Write the retrieval figure of a trained network to an SVG file."""
    parser = argparse.ArgumentParser(prog="python -m entourage.demo.learning", description=main.__doc__)
    parser.add_argument("file", metavar="FILE.svg", type=Path)
    file = parser.parse_args().file  # before the training, which takes half a minute
    digits = read_digits()
    figure = _embed_picture(digits, _embedded(digits, train_digits(digits)))
    write_text(file, figure + "\n")


if __name__ == "__main__":
    main()


SETS, SHOWN_SETS, N, K = 40, 6, 150, 5
SEED = 20_180_919
# Best options on 100 sets of this size; experiments/cluster_points.py selects them.
DBSCAN_RADIUS, DBSCAN_MIN_SAMPLES = 0.1, 2
Points = NDArray[np.float64]

Method = Callable[[Points], Labels]


def cluster_section() -> Section:
    """Cluster 40 sets of points by three methods, and draw the results for the first six sets."""
    episode = PointSampler(K).draw(SETS, N, torch.Generator().manual_seed(SEED))
    labels_true = np.asarray(episode.labels)
    points = episode.x.double().numpy()
    network = LearnedClustering("points", device="cpu")
    methods: dict[str, Method] = {
        "k-means, k by silhouette": lambda X: k_means_silhouette(X, K).astype(np.int64),
        "DBSCAN": lambda X: dbscan(X, DBSCAN_RADIUS, DBSCAN_MIN_SAMPLES).astype(np.int64),
        "the network": network.fit_predict,
    }
    predictions = {name: [method(X) for X in points] for name, method in methods.items()}
    rows = [("method", "misclassified", "NMI", "correct number of clusters")]
    for name, labels_pred in predictions.items():
        mean = mean_scores([score(t, p) for t, p in zip(labels_true, labels_pred, strict=True)])
        rows.append((name, f"{mean.mr:.1%}", f"{mean.nmi:.3f}", f"{mean.k_right:.0%}"))
    lead = (
        f"{SETS} sets of {N} points with 1 to {K} clusters; the number of clusters is not passed to the methods. The "
        "network was trained on other sets and needs neither the shapes of the clusters nor options. Colours are the "
        f"predicted clusters of the first {SHOWN_SETS} sets."
    )
    shown = {name: labels_pred[:SHOWN_SETS] for name, labels_pred in predictions.items()}
    figure = cluster_picture(points[:SHOWN_SETS], labels_true[:SHOWN_SETS], shown)
    return Section("cluster: groups of any shape and number", lead, wide=[Block(figure=figure), Block(table=rows)])


def cluster_picture(points: Points, labels_true: Labels, predictions: dict[str, list[Labels]]) -> str:
    """Draw a grid with a column per set and a row per method; titles are fractions of misclassified points."""
    with figure_style():
        figure = Figure(figsize=(11, 2 * len(predictions)))
        grid = figure.subplots(len(predictions), len(points), squeeze=False)
        for row, (name, labels_pred) in zip(grid, predictions.items(), strict=True):
            for axes, X, expected, predicted in zip(row, points, labels_true, labels_pred, strict=True):
                _draw_clusters(axes, X, predicted, score(expected, predicted).mr)
            row[0].text(-0.1, 0.5, name, rotation=90, ha="center", va="center", transform=row[0].transAxes)
        return to_svg(figure)


def _draw_clusters(axes: Axes, X: Points, labels: Labels, error: float) -> None:
    colours = [f"C{label % 10}" if label >= 0 else "#c4ccd3" for label in labels]  # grey: noise of DBSCAN
    axes.scatter(X[:, 0], X[:, 1], c=colours, s=4, linewidths=0, rasterized=True)
    axes.set_title("all right" if error == 0 else f"{error:.1%} wrong", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
