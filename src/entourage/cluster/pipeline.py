"""The command `cluster run`: load items, cluster them with a trained network, and write clusters and a report."""

from __future__ import annotations

import csv
from colorsys import hsv_to_rgb
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from torch import Tensor

from entourage import __version__
from entourage.cluster.data import SAMPLE_RATE, ItemKind, Items, detect_kind, load_items, loudest_segment
from entourage.cluster.estimator import TABLES, LearnedClustering, check_parameters
from entourage.cluster.models.network import find_weights, load_network
from entourage.cluster.sampling.augmentation import scale_pixels
from entourage.data.media import read_audio, read_image
from entourage.io.files import atomic_path, check_outputs, write_json
from entourage.report.figures import ACCENT, SOFT, dots_figure, figure_style, to_svg
from entourage.report.page import Block, Section, Thumbnail, audio_data_uri, pluralize, thumbnail_data_uri, write_page

MAX_THUMBNAILS = 600  # per report, about 2 MB
MAX_AUDIO_PLAYERS = 150
ITEMS_PER_CLUSTER = 12  # displayed items per cluster
MAX_DOTS = 5000  # more points are drawn as one picture, without a legend


def clustering_sections(items: Items, model: LearnedClustering) -> list[Section]:
    """Return the sections of the report on a clustering."""
    sections = [_overview(items, model), _clusters(items, model)]
    if items.skipped:
        rows = [("item", "reason"), *items.skipped]
        sections.append(Section("Skipped", "These files could not be read.", wide=[Block(table=rows)]))
    return sections


def count_figure(probabilities: NDArray[np.float64], chosen: int) -> str:
    """Plot P(k) as bars, with the chosen k highlighted."""
    with figure_style():
        figure = Figure(figsize=(4.6, 2.4))
        axes = figure.subplots()
        k = np.arange(1, len(probabilities) + 1)
        axes.bar(k, probabilities, color=[ACCENT if position == chosen else SOFT for position in k])
        axes.set_xlabel("clusters, k")
        axes.set_ylabel("P(k)")
        axes.set_ylim(0, 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return to_svg(figure)


def scatter_figure(points: NDArray[np.float64], labels: NDArray[np.int64]) -> str:
    """Plot points coloured by cluster; more than two columns are projected on the first two principal components."""
    plane = points if points.shape[1] == 2 else _project_to_plane(points)
    if len(plane) <= MAX_DOTS:
        return dots_figure(plane, [f"cluster {label}" for label in labels], [cluster_colour(one) for one in labels])
    with figure_style():
        figure = Figure(figsize=(6, 5))
        axes = figure.subplots()
        colours = [cluster_colour(one) for one in labels]
        axes.scatter(plane[:, 0], plane[:, 1], c=colours, s=10, linewidths=0, rasterized=True)
        axes.set_aspect("equal", adjustable="datalim")
        return to_svg(figure)


def cluster_colour(label: int) -> str:
    """Return the colour of a cluster as in CSS."""
    red, green, blue = hsv_to_rgb(label * 0.618034 % 1, 0.7, 0.8 - 0.15 * (label % 3))
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


_PLANE = {True: "The items", False: "The items, on their first two principal components"}


def _overview(items: Items, model: LearnedClustering) -> Section:
    count = model.count_probabilities_
    probability = count[model.n_clusters_ - 1] if model.n_clusters_ <= len(count) else 0.0
    lead = f"{len(items.names)} items in {pluralize(model.n_clusters_, 'clusters')}"
    text = "Estimated probability of each number of clusters."
    if model.n_subsets_ == 1:
        lead += f". The probability of this number of clusters is {probability:.0%}."
    else:
        lead += f", clustered in {model.n_subsets_} subsets. "
        lead += f"The mean probability of this number of clusters in a subset is {probability:.0%}."
        text = f"Estimated probability of each number of clusters, the mean over {model.n_subsets_} subsets."
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    confidence = [model.probabilities_[model.labels_ == c, c].mean() for c in range(model.n_clusters_)]
    rows = [("cluster", "items", "mean probability")]
    rows += [(str(c), str(size), f"{mean:.1%}") for c, (size, mean) in enumerate(zip(sizes, confidence, strict=True))]
    blocks = [
        Block(
            title="Number of clusters",
            text=text,
            figure=count_figure(model.count_probabilities_, model.n_clusters_),
        ),
        Block(title="Size and mean probability", table=rows),
    ]
    if items.kind == "points":
        figure = scatter_figure(items.values.double().numpy(), model.labels_)
        return Section(
            "Overview",
            lead,
            blocks=blocks,
            wide=[Block(_PLANE[items.values.shape[1] == 2], figure=figure, legend=True)],
        )
    return Section("Overview", lead, blocks=blocks)


def _clusters(items: Items, model: LearnedClustering) -> Section:
    max_items = MAX_AUDIO_PLAYERS if items.kind == "sounds" else MAX_THUMBNAILS
    n_shown = max(1, min(ITEMS_PER_CLUSTER, max_items // model.n_clusters_))
    blocks = []
    for cluster in range(model.n_clusters_):
        members = np.flatnonzero(model.labels_ == cluster)
        members = members[np.argsort(-model.probabilities_[members, cluster], kind="stable")]
        # The most and the least probable items: together they show what the cluster contains.
        half = (n_shown + 1) // 2
        shown = members if len(members) <= n_shown else np.concatenate([members[:half], members[-(n_shown - half) :]])
        thumbnails = [_thumbnail(items, int(i), f"{model.probabilities_[i, cluster]:.0%}") for i in shown]
        more = "" if len(shown) == len(members) else f" ({half} most and {n_shown - half} least probable ones shown)"
        title = f"Cluster {cluster}: {pluralize(len(members), 'items')}{more}"
        blocks.append(Block(title, thumbnails=thumbnails, group=f"cluster {cluster}", count=len(members)))
    return Section("Cluster by cluster", "Items with the probability of their cluster.", wide=blocks)


def _thumbnail(items: Items, index: int, note: str) -> Thumbnail:
    name = items.names[index]
    if items.files is None:
        return Thumbnail(name, note)
    if items.kind == "sounds":
        segment = loudest_segment(torch.from_numpy(read_audio(items.files[index], SAMPLE_RATE)))
        return Thumbnail(name, note, sound=audio_data_uri(segment.numpy(), SAMPLE_RATE))
    return Thumbnail(name, note, thumbnail_data_uri(read_image(items.files[index])))


def _project_to_plane(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first two principal components; a single column is padded with zeros."""
    if points.shape[1] == 1:
        return np.concatenate([points, np.zeros_like(points)], axis=1)
    return np.asarray(PCA(2, random_state=0).fit_transform(points))


COMMAND = "cluster run"
BACKBONE = "efficientnet-lite0"  # whose features of images are clustered as a table
OUTPUTS = ("clusters.csv", "report.html", "summary.json")


def run_source(
    source: Path,
    out: Path,
    *,
    model: str = "tables",
    n_clusters: int | None = None,
    k_max: int | None = None,
    set_size: int | None = None,
    device: str = "auto",
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Cluster the items of a table or folder and write `clusters.csv`, `report.html` and `summary.json`.

    Args:
        source: table, or folder of images or sounds.
        out: output folder.
        model: "tables" for a table, or for the features of a backbone of images; file, or name of a shipped network.
        n_clusters: number of clusters, if known.
        k_max: maximum number of clusters; None for that of the network's training.
        set_size: items per set; None for that of the network's training.
        device: "auto", "cpu", "cuda", ...
        seed: random seed for the core and the subsets of more than `set_size` items.
        progress: show progress bars; None: only on a terminal.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: an argument or the input is invalid.
    """
    check_outputs(out, OUTPUTS, [source], command=COMMAND)
    clusterer = LearnedClustering(
        model, n_clusters=n_clusters, k_max=k_max, set_size=set_size, device=device, random_state=seed
    )
    check_parameters(clusterer)
    if model == TABLES:
        kind: ItemKind = "images" if source.is_dir() else "points"
        if source.is_dir() and detect_kind(source) == "sounds":
            raise ValueError(
                f"{source}: contains sounds; expected images or a table, or --model with a trained network"
            )
        items = load_items(source, kind, backbone=BACKBONE, device=device, progress=progress)
        _check_items(source, model, items, None)
    else:
        network = load_network(find_weights(model))
        clusterer.model = network
        notes, shape = network.notes, network.shape
        kind = "points" if len(shape) == 1 and not notes.get("backbone") else _item_kind(shape, notes)
        items = load_items(source, kind, backbone=notes.get("backbone", ""), device=device, progress=progress)
        _check_items(source, model, items, shape)
    clusterer.fit(_to_network_input(items))
    summary = _summary(source, model, items, clusterer)
    sections = clustering_sections(items, clusterer)
    _write_clusters(out / "clusters.csv", items, clusterer)
    title = f"Clusters of {source.name}"
    write_page(out / "report.html", title, f"{len(items.names)} items, entourage {__version__}", sections)
    write_json(out / "summary.json", summary)
    return summary


def _item_kind(shape: tuple[int, ...], notes: dict[str, str]) -> ItemKind:
    return "sounds" if notes.get("items") == "sounds" or shape[0] == 1 else "images"


def _to_network_input(items: Items) -> Tensor:
    """Convert the items to the input format of the network."""
    if items.kind == "sounds":
        return items.values.unsqueeze(1)  # (n, 128, 128) -> (n, 1, 128, 128)
    return scale_pixels(items.values) if items.values.dtype == torch.uint8 else items.values


def _check_items(source: Path, model: str, items: Items, shape: tuple[int, ...] | None) -> None:
    if len(items.names) < 2:
        raise ValueError(f"{source}: contains one item; expected two or more")
    if shape is not None and len(shape) == 1 and items.values.shape[1] != shape[0]:
        raise ValueError(
            f"{source}: {items.values.shape[1]} columns of numbers; expected {shape[0]}, as model {model!r}"
        )


def _write_clusters(path: Path, items: Items, clusterer: LearnedClustering) -> None:
    # File names may not be valid UTF-8: they are escaped as in the report and the summary, see `write_text`.
    escape = "backslashreplace"
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors=escape) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["item", "cluster", "probability", *(f"p{c}" for c in range(clusterer.n_clusters_))])
        for name, label, row in zip(items.names, clusterer.labels_, clusterer.probabilities_, strict=True):
            writer.writerow([name, int(label), f"{row[label]:.4f}", *(f"{p:.4f}" for p in row)])


def _summary(source: Path, model: str, items: Items, clusterer: LearnedClustering) -> dict[str, Any]:
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "source": str(source),
        "model": model,
        "items": len(items.names),
        "clusters": clusterer.n_clusters_,
        "sizes": np.bincount(clusterer.labels_, minlength=clusterer.n_clusters_).tolist(),
        "parts": clusterer.n_subsets_,
        "count_probabilities": [round(float(p), 6) for p in clusterer.count_probabilities_],
        "mean_probability": float(clusterer.probabilities_.max(axis=1).mean()),
        "skipped": [{"item": name, "reason": reason} for name, reason in items.skipped],
    }
