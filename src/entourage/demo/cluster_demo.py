"""The demo's section: 2D sets nobody has seen, clustered by the network beside k-means and DBSCAN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from entourage.cluster.clustering import LearnedClustering
from entourage.cluster.measures import mean_scores, score
from entourage.cluster.rivals import dbscan, k_means_silhouette
from entourage.cluster.sampling.points import PointSampler
from entourage.demo.label_demo import Labels
from entourage.report.figures import house_style, to_svg
from entourage.report.page import Block, Section

SETS, SHOWN, N, K = 40, 6, 150, 5
SEED = 20_180_919
# The best setting on 100 sets of this size: see experiments/cluster_points.py for how it is chosen.
DBSCAN_RADIUS, DBSCAN_CROWD = 0.1, 2
Floats = NDArray[np.float64]

Method = Callable[[Floats], Labels]


def demo_section() -> Section:
    """Clusters forty sets by three methods and draws the first six."""
    episode = PointSampler(K).draw(SETS, N, torch.Generator().manual_seed(SEED))
    truth = np.asarray(episode.labels)
    points = episode.x.double().numpy()
    network = LearnedClustering.load("points", device="cpu")
    methods: dict[str, Method] = {
        "k-means, k by silhouette": lambda X: k_means_silhouette(X, K).astype(np.int64),
        "DBSCAN": lambda X: dbscan(X, DBSCAN_RADIUS, DBSCAN_CROWD).astype(np.int64),
        "the network": network.predict,
    }
    found = {name: [method(X) for X in points] for name, method in methods.items()}
    rows = [("method", "misclassified", "NMI", "right number of clusters")]
    for name, answers in found.items():
        mean = mean_scores([score(t, f) for t, f in zip(truth, answers, strict=True)])
        rows.append((name, f"{mean.mr:.1%}", f"{mean.nmi:.3f}", f"{mean.k_right:.0%}"))
    lead = (
        f"{SETS} sets of {N} points that nobody has seen, of 1 to {K} clusters whose number nobody was told. A network "
        "that has learned from other sets what a cluster is needs no shape and no setting; colours are what each "
        f"method found. Shown are the first {SHOWN}."
    )
    figure = Block(figure=picture(points[:SHOWN], truth[:SHOWN], {n: f[:SHOWN] for n, f in found.items()}))
    return Section("cluster: groups of any shape, and how many", lead, wide=[figure, Block(table=rows)])


def picture(points: Floats, truth: Labels, found: dict[str, list[Labels]]) -> str:
    """A grid: a column a set, a row a method, each with the share of misclassified points."""
    with house_style():
        figure = Figure(figsize=(11, 2 * len(found)))
        grid = figure.subplots(len(found), len(points), squeeze=False)
        for row, (name, answers) in zip(grid, found.items(), strict=True):
            for axes, X, right, labels in zip(row, points, truth, answers, strict=True):
                _draw(axes, X, labels, score(right, labels).mr)
            row[0].text(-0.1, 0.5, name, rotation=90, ha="center", va="center", transform=row[0].transAxes)
        return to_svg(figure)


def _draw(axes: Axes, X: Floats, labels: Labels, wrong: float) -> None:
    colours = [f"C{label % 10}" if label >= 0 else "#c4ccd3" for label in labels]  # grey is DBSCAN's noise
    axes.scatter(X[:, 0], X[:, 1], c=colours, s=4, linewidths=0, rasterized=True)
    axes.set_title("all right" if wrong == 0 else f"{wrong:.1%} wrong", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
