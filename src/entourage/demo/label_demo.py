"""The demo's section: handwritten digits, one label a class, the game beside scikit-learn's label spreading."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.semi_supervised import LabelSpreading as PeerSpreading

from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction
from entourage.report.figures import INK, house_style, to_svg
from entourage.report.page import Block, Section

Labels = NDArray[np.int64]

DRAWS = 10
# The best of alpha in {.2, .8, .99} and k in {7, 15} for the peer: see benchmarks/label_accuracy.py.
PEER = {"kernel": "knn", "n_neighbors": 15, "alpha": 0.8, "max_iter": 1000}


def demo_section() -> Section:
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
    figure = _picture(TSNE(random_state=0).fit_transform(X), truth, given, peers[typical], games[typical])
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


def _picture(map_: Floats, truth: Labels, given: NDArray[np.bool_], peer: Labels, game: Labels) -> str:
    with house_style():
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
