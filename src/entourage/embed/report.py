"""What people see of embeddings: what a query finds, a map of all items, and curves of training.

Pictures are SVG elements that hold their thumbnails as JPEG, so that a page needs nothing else. An `ImageGetter` gives
an item's image by its position; it is called only for items that are shown. Matplotlib and scikit-learn are imported by
those that need them: a search answers without.

The report on embeddings: a table of metrics, what queries find, a map of all items, the course of the training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

from entourage.data.image_set import ImageSet
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import Rows
from entourage.report.figures import figure_style, to_svg
from entourage.report.page import Block, Section, thumbnail_data_uri

ImageGetter = Callable[[int], Image.Image]

QUERY_COLOUR, CORRECT_COLOUR, WRONG_COLOUR, UNKNOWN_COLOUR = "#22303c", "#2e9e5b", "#d1493f", "#b8c4ce"
SIDE, FRAME, GAP = 96, 4, 10  # of a thumbnail in the retrieval picture, in pixels
MAP_SIDE = 960  # of the map
# Neighbouring classes differ; with more classes than colours they repeat.
COLOURS = ("#2a6f97", "#d1783f", "#2e9e5b", "#d1493f", "#7d5ba6", "#8c6d46", "#d17fb3", "#7f8c8d", "#b0a82f", "#3fb5c4")


def draw_retrieval(
    get_image: ImageGetter, queries: Sequence[int], neighbors: ArrayLike, labels: Sequence[object] | NDArray[np.generic]
) -> str:
    """A row a query: the query, then what it found, nearest first, framed in green where the class is right.

    Args:
        get_image: gives an item's image.
        queries: positions of the items that were looked up.
        neighbors: positions of the items they found, shape (queries, k), nearest first.
        labels: the class of each item; None for a query whose class is unknown: what it finds has a grey frame.

    Returns:
        An `<svg>` element.
    """
    indices = np.asarray(neighbors)
    if indices.ndim != 2 or len(indices) != len(queries):
        raise ValueError(f"neighbors have shape {indices.shape}; expected ({len(queries)}, k), a row a query")
    step = SIDE + 2 * FRAME + GAP
    marks: list[str] = []
    for row, query in enumerate(queries):
        marks += _framed(get_image(query), 0, row * step, QUERY_COLOUR, f"query: {labels[query] or 'of unknown class'}")
        for column, item in enumerate(indices[row].tolist(), start=1):
            colour = (
                UNKNOWN_COLOUR
                if labels[query] is None
                else CORRECT_COLOUR
                if labels[item] == labels[query]
                else WRONG_COLOUR
            )
            left = column * step + GAP  # a little apart from the query
            marks += _framed(get_image(item), left, row * step, colour, str(labels[item]))
    width, height = (indices.shape[1] + 1) * step + GAP, len(indices) * step
    return _svg(width, height, marks)


def draw_map(
    get_image: ImageGetter, positions: ArrayLike, labels: Sequence[object] | NDArray[np.generic], *, cells: int = 24
) -> str:
    """A map of items: a dot in the colour of its class for each, and thumbnails for as many as there is room for.

    Args:
        get_image: gives an item's image.
        positions: where the items are, shape (n, 2), e.g. as `tsne_positions` gives them.
        labels: the class of each item.
        cells: thumbnails in a row of the map, if it were full.

    Returns:
        An `<svg>` element.
    """
    points = _in_unit_square(positions)  # (n, 2)
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    colours = [COLOURS[code % len(COLOURS)] for code in codes]
    side = MAP_SIDE / cells
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7"/>'
        for (x, y), colour in zip(points * MAP_SIDE, colours, strict=True)
    ]
    for item, (column, row) in _cell_items(points, cells):
        href = thumbnail_data_uri(get_image(item), side=2 * round(side))  # sharp when zoomed in
        box = f'x="{column * side + 1:.1f}" y="{row * side + 1:.1f}" width="{side - 2:.1f}" height="{side - 2:.1f}"'
        title = f"<title>{escape(str(labels[item]))}</title>"
        marks.append(f'<image {box} href="{href}" preserveAspectRatio="xMidYMid slice">{title}</image>')
        marks.append(f'<rect {box} fill="none" stroke="{colours[item]}" stroke-width="2"/>')
    return _svg(MAP_SIDE, MAP_SIDE, marks)


def tsne_positions(embeddings: ArrayLike, *, seed: int = 0) -> NDArray[np.float32]:
    """Where t-SNE puts embeddings, of any length, on a plane by their directions: shape (n, 2)."""
    from sklearn.manifold import TSNE

    points = np.asarray(embeddings, dtype=np.float32)
    if points.ndim != 2 or len(points) < 4:
        raise ValueError(f"embeddings have shape {points.shape}; expected (samples, dimensions), four samples or more")
    points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    perplexity = min(30.0, (len(points) - 1) / 3)
    positions = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
    return np.asarray(positions, dtype=np.float32)


def plot_training_curves(curves: Mapping[str, Sequence[float]], *, label: str = "Recall@1") -> str:
    """A line for each name over epochs 1, 2, ..., e.g. of training classes and of classes never seen."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with figure_style():
        figure = Figure(figsize=(4.6, 2.8))
        axes = figure.subplots()
        for (name, values), colour in zip(curves.items(), COLOURS, strict=False):
            axes.plot(
                np.arange(1, len(values) + 1), values, color=colour, linewidth=1.8, label=name.replace("$", r"\$")
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.legend(frameon=False, fontsize=8)
        return to_svg(figure)


def _framed(image: Image.Image, left: float, top: float, colour: str, title: str) -> Iterator[str]:
    href = thumbnail_data_uri(_square(image), side=2 * SIDE)
    outer = SIDE + 2 * FRAME
    yield f'<rect x="{left}" y="{top}" width="{outer}" height="{outer}" rx="3" fill="{colour}"/>'
    box = f'x="{left + FRAME}" y="{top + FRAME}" width="{SIDE}" height="{SIDE}"'
    yield f'<image {box} href="{href}"><title>{escape(title)}</title></image>'


def _square(image: Image.Image) -> Image.Image:
    """The middle of the picture."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _in_unit_square(positions: ArrayLike) -> NDArray[np.float64]:
    points = np.asarray(positions, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise ValueError(f"positions have shape {points.shape}; expected (items, 2), finite")
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    return np.asarray((points - low) / np.where(span > 0, span, 1))


def _cell_items(points: NDArray[np.float64], cells: int) -> list[tuple[int, tuple[int, int]]]:
    """Items that have a cell of the map to themselves, with its column and row: in each, the one nearest its middle."""
    cell = np.minimum((points * cells).astype(int), cells - 1)  # (n, 2)
    distance = np.linalg.norm(points * cells - cell - 0.5, axis=1)
    best: dict[tuple[int, int], int] = {}
    for item in np.argsort(distance, kind="stable").tolist():
        best.setdefault((int(cell[item, 0]), int(cell[item, 1])), item)
    return [(item, position) for position, item in best.items()]


def _svg(width: float, height: float, marks: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">'
    return head + "".join(marks) + "</svg>"


RANDOM_QUERIES, FAILED_QUERIES, N_NEIGHBORS = 6, 4, 8  # rows of the retrieval picture, and neighbours of each
MAX_ON_MAP = 1500
RECALL_K = (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """Images with their embeddings, rows of length 1, shape (n, d)."""

    images: ImageSet
    embeddings: Tensor

    def subset(self, rows: Rows) -> EmbeddedSet:
        """Some of them."""
        return EmbeddedSet(self.images.subset(rows), self.embeddings[torch.from_numpy(rows).to(self.embeddings.device)])


def compute_metrics(embedded: EmbeddedSet, *, nmi: bool = True) -> dict[str, float]:
    """The metrics of a set, with Recall@K only for as many neighbours as there are."""
    k = [at for at in RECALL_K if at < len(embedded.images)]
    return retrieval_metrics(embedded.embeddings, embedded.images.labels, k or [1], nmi=nmi)


def is_measurable(labels: Rows) -> bool:
    """Whether there are two classes and two images of one of them: otherwise nothing can be found, or all is right."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > 1


def metrics_table(measured: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Rows of text, the first being the header; all values in per cent."""
    names = list(dict.fromkeys(name for metrics in measured.values() for name in metrics))
    rows = [("", *names)]
    for title, metrics in measured.items():
        rows.append((title, *(f"{100 * metrics[name]:.1f}" if name in metrics else "" for name in names)))
    return rows


def format_table(table: Sequence[Sequence[str]]) -> str:
    """A table for a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(lines)


def embedding_sections(
    embedded: EmbeddedSet,
    measured: Mapping[str, Mapping[str, float]],
    curves: Mapping[str, Sequence[float]] | None = None,
    skipped: Sequence[tuple[str, str]] = (),
    *,
    seed: int = 0,
) -> list[Section]:
    """The sections of a report.

    Args:
        embedded: what pictures show.
        measured: metrics by the name of their row.
        curves: Recall@1 after each epoch by the name of the set, if there was a training.
        skipped: name and reason of each image that could not be read.
        seed: of the choice of queries and of the map.
    """
    lead = (
        "Recall@K: per cent of queries with one of their class among the K most similar images. R-precision and MAP@R "
        "look at as many neighbours as the class has. NMI compares clusters found by k-means with the classes."
    )
    sections = [Section("Metrics", lead, wide=[Block(table=metrics_table(measured))])]
    if curves:
        text = "A curve of the training images far above the others means that the network has learnt them by heart."
        sections.append(Section("The training", text, blocks=[Block(figure=plot_training_curves(curves))]))
    sections += [_queries(embedded, seed), _map(embedded, seed)]
    if skipped:
        rows = [("item", "reason"), *skipped]
        sections.append(Section("Skipped", "These images could not be read.", wide=[Block(table=rows)]))
    return sections


def _queries(embedded: EmbeddedSet, seed: int) -> Section:
    labels = embedded.images.labels
    order = np.random.default_rng(seed).permutation(len(labels))[:1000]
    neighbors = _neighbors(embedded.embeddings, order)  # (queries, k)
    failed = np.flatnonzero(labels[neighbors[:, 0]] != labels[order])
    failed = failed[failed >= RANDOM_QUERIES][:FAILED_QUERIES]
    selected = np.concatenate([np.arange(min(RANDOM_QUERIES, len(order))), failed])
    names = [embedded.images.class_names[label] for label in labels]
    picture = draw_retrieval(embedded.images.image, order[selected].tolist(), neighbors[selected], names)
    lead = "The query on the left, then the most similar images: green frames are of its class, red ones of another."
    if len(failed):
        lead += f" The first {RANDOM_QUERIES} queries are drawn at random, the others from those that fail."
    return Section("What queries find", lead, wide=[Block(figure=picture)])


def _map(embedded: EmbeddedSet, seed: int) -> Section:
    n = len(embedded.images)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:MAX_ON_MAP])
    if len(rows) < 4:
        return Section("A map", "Four images or more could be shown on a map.")
    subset = embedded.subset(rows)
    names = [subset.images.class_names[label] for label in subset.images.labels]
    picture = draw_map(subset.images.image, tsne_positions(subset.embeddings.cpu().numpy(), seed=seed), names)
    lead = f"t-SNE lays similar images side by side; frames and dots are coloured by class. {len(rows)} of {n} images."
    return Section("A map", lead, wide=[Block(figure=picture)])


def _neighbors(embeddings: Tensor, queries: Rows) -> Rows:
    """The most similar others of each query, shape (queries, k), most similar first."""
    rows = torch.from_numpy(queries).to(embeddings.device)
    cosines = embeddings[rows] @ embeddings.T  # (queries, n)
    cosines.scatter_(1, rows[:, None], -torch.inf)
    neighbors: Rows = cosines.topk(min(N_NEIGHBORS, len(embeddings) - 1), dim=1).indices.cpu().numpy()
    return neighbors
