"""What people see of a clustering: how many clusters there may be, and what is in them."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from entourage.cluster.clustering import LearnedClustering
from entourage.cluster.represent import Items, loudest_snippet
from entourage.cluster.spectrogram import RATE
from entourage.data.audio import read_audio
from entourage.data.images import read_image
from entourage.report.counted import counted
from entourage.report.figures import ACCENT, SOFT, house_style, to_svg
from entourage.report.page import Block, Section, Thumbnail, sound_address, thumbnail_address

MOST_THUMBNAILS = 600  # some 2 MB of report
MOST_PLAYERS = 150
STRIP = 12  # items of a cluster that are shown


def clustering_sections(items: Items, model: LearnedClustering) -> list[Section]:
    """The sections of the report on a clustering."""
    sections = [_overview(items, model), _clusters(items, model)]
    if items.skipped:
        rows = [("item", "reason"), *items.skipped]
        sections.append(Section("Skipped", "These files could not be read.", wide=[Block(table=rows)]))
    return sections


def count_figure(probabilities: NDArray[np.float64], chosen: int) -> str:
    """P(k) as bars, the chosen k in a stronger colour."""
    with house_style():
        figure = Figure(figsize=(4.6, 2.4))
        axes = figure.subplots()
        k = np.arange(1, len(probabilities) + 1)
        axes.bar(k, probabilities, color=[ACCENT if place == chosen else SOFT for place in k])
        axes.set_xlabel("clusters, k")
        axes.set_ylabel("P(k)")
        axes.set_ylim(0, 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return to_svg(figure)


def scatter_figure(points: NDArray[np.float64], labels: NDArray[np.int64]) -> str:
    """Points in the colours of their clusters; more than two columns are shown along their two main directions."""
    flat = points if points.shape[1] == 2 else _flattened(points)
    with house_style():
        figure = Figure(figsize=(6, 5))
        axes = figure.subplots()
        marks = axes.scatter(flat[:, 0], flat[:, 1], c=labels % 20, cmap="tab20", s=10, linewidths=0, rasterized=True)
        marks.set_clim(0, 19)
        axes.set_aspect("equal", adjustable="datalim")
        if points.shape[1] != 2:
            axes.set_xlabel("first main direction")
            axes.set_ylabel("second")
        return to_svg(figure)


def _overview(items: Items, model: LearnedClustering) -> Section:
    count = model.count_probabilities_
    chance = count[model.n_clusters_ - 1] if model.n_clusters_ <= len(count) else 0.0
    lead = f"{len(items.names)} items in {counted(model.n_clusters_, 'clusters')}"
    text = "What the network thinks of every number."
    if model.parts_ == 1:
        lead += f", which is how many there are with probability {chance:.0%}."
    else:
        lead += f", looked at in {model.parts_} parts. A part has as many with probability {chance:.0%}, on average."
        text = f"What the network thinks of every number in a part, the mean of {model.parts_} parts."
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    sure = [model.probabilities_[model.labels_ == c, c].mean() for c in range(model.n_clusters_)]
    rows = [("cluster", "items", "mean probability")]
    rows += [(str(c), str(size), f"{mean:.1%}") for c, (size, mean) in enumerate(zip(sizes, sure, strict=True))]
    blocks = [
        Block(
            title="How many clusters?",
            text=text,
            figure=count_figure(model.count_probabilities_, model.n_clusters_),
        ),
        Block(title="How large, how sure?", table=rows),
    ]
    if items.kind == "points":
        figure = scatter_figure(items.values.double().numpy(), model.labels_)
        return Section("Overview", lead, blocks=blocks, wide=[Block(title="The items", figure=figure)])
    return Section("Overview", lead, blocks=blocks)


def _clusters(items: Items, model: LearnedClustering) -> Section:
    most = MOST_PLAYERS if items.kind == "sounds" else MOST_THUMBNAILS
    strip = max(1, min(STRIP, most // model.n_clusters_))
    blocks = []
    for cluster in range(model.n_clusters_):
        members = np.flatnonzero(model.labels_ == cluster)
        members = members[np.argsort(-model.probabilities_[members, cluster], kind="stable")]
        # The surest and the least sure: both tell what the cluster is.
        half = (strip + 1) // 2
        shown = members if len(members) <= strip else np.concatenate([members[:half], members[-(strip - half) :]])
        thumbnails = [_thumbnail(items, int(i), f"{model.probabilities_[i, cluster]:.0%}") for i in shown]
        more = "" if len(shown) == len(members) else f", of which the surest {half} and the least sure are shown"
        blocks.append(Block(f"Cluster {cluster}: {counted(len(members), 'items')}{more}", thumbnails=thumbnails))
    return Section("Cluster by cluster", "Items with the probability that they belong to their cluster.", wide=blocks)


def _thumbnail(items: Items, index: int, note: str) -> Thumbnail:
    name = items.names[index]
    if items.files is None:
        return Thumbnail(name, note)
    if items.kind == "sounds":
        heard = loudest_snippet(torch.from_numpy(read_audio(items.files[index], RATE)))
        return Thumbnail(name, note, sound=sound_address(heard.numpy(), RATE))
    return Thumbnail(name, note, thumbnail_address(read_image(items.files[index])))


def _flattened(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two columns: the main directions, or a single column beside zeros."""
    if points.shape[1] == 1:
        return np.concatenate([points, np.zeros_like(points)], axis=1)
    return np.asarray(PCA(2, random_state=0).fit_transform(points))
