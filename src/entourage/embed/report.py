"""Report on embeddings: table of metrics, retrieval results, t-SNE map and training curves.

Figures are SVG elements with embedded JPEG thumbnails, so that a page is self-contained. An `ImageGetter` returns the
image of an item by its index; it is called only for items that are shown. Matplotlib and scikit-learn are imported in
the functions that use them, because a search needs neither.
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
SIDE, FRAME, GAP = 96, 4, 10  # thumbnails of the retrieval figure: side, frame width and distance in pixels
MAP_SIDE = 960  # side of the map in pixels
# Colours of classes and curves; they repeat if there are more classes.
COLOURS = ("#2a6f97", "#d1783f", "#2e9e5b", "#d1493f", "#7d5ba6", "#8c6d46", "#d17fb3", "#7f8c8d", "#b0a82f", "#3fb5c4")


def draw_retrieval(
    get_image: ImageGetter, queries: Sequence[int], neighbors: ArrayLike, labels: Sequence[object] | NDArray[np.generic]
) -> str:
    """Draw one row per query: the query and its neighbours, nearest first, framed in green if the class matches.

    Args:
        get_image: returns the image of an item.
        queries: indices of the query items.
        neighbors: indices of their neighbours, shape (queries, k), nearest first.
        labels: the class of each item. If that of a query is None (unknown), its neighbours have a grey frame.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: `neighbors` does not have one row per query.
    """
    indices = np.asarray(neighbors)
    if indices.ndim != 2 or len(indices) != len(queries):
        raise ValueError(f"neighbors have shape {indices.shape}; expected ({len(queries)}, k), a row per query")
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
            left = column * step + GAP  # a wider gap after the query
            marks += _framed(get_image(item), left, row * step, colour, str(labels[item]))
    width, height = (indices.shape[1] + 1) * step + GAP, len(indices) * step
    return _svg(width, height, marks)


def draw_map(
    get_image: ImageGetter, positions: ArrayLike, labels: Sequence[object] | NDArray[np.generic], *, cells: int = 24
) -> str:
    """Draw items as dots in the colours of their classes, with one thumbnail per occupied cell of a grid.

    Args:
        get_image: returns the image of an item.
        positions: coordinates of the items, shape (n, 2), for example those of `tsne_positions`.
        labels: the class of each item.
        cells: number of grid cells per row and column.

    Returns:
        An `<svg>` element.

    Raises:
        ValueError: positions are not finite or do not have two columns.
    """
    points = _in_unit_square(positions)  # (n, 2)
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    colours = [COLOURS[code % len(COLOURS)] for code in codes]
    side = MAP_SIDE / cells
    groups = [
        f'data-class="{escape(str(one))}" data-color="{colour}"' for one, colour in zip(labels, colours, strict=True)
    ]
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7" {group}/>'
        for (x, y), colour, group in zip(points * MAP_SIDE, colours, groups, strict=True)
    ]
    for item, (column, row) in _cell_items(points, cells):
        href = thumbnail_data_uri(get_image(item), side=2 * round(side))  # twice the size, for zooming
        box = f'x="{column * side + 1:.1f}" y="{row * side + 1:.1f}" width="{side - 2:.1f}" height="{side - 2:.1f}"'
        title = f"<title>{escape(str(labels[item]))}</title>"
        picture = f'<image {box} href="{href}" preserveAspectRatio="xMidYMid slice">{title}</image>'
        frame = f'<rect {box} fill="none" stroke="{colours[item]}" stroke-width="2"/>'
        marks.append(f'<g {groups[item]} data-count="0">{picture}{frame}</g>')
    return _svg(MAP_SIDE, MAP_SIDE, marks)


def tsne_positions(embeddings: ArrayLike, *, seed: int = 0) -> NDArray[np.float32]:
    """Compute the t-SNE coordinates, shape (n, 2), of embeddings scaled to length 1."""
    from sklearn.manifold import TSNE

    points = np.asarray(embeddings, dtype=np.float32)
    if points.ndim != 2 or len(points) < 4:
        raise ValueError(f"embeddings have shape {points.shape}; expected (samples, dimensions), four samples or more")
    points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    perplexity = min(30.0, (len(points) - 1) / 3)
    positions = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
    return np.asarray(positions, dtype=np.float32)


def plot_training_curves(curves: Mapping[str, Sequence[float]], *, label: str = "Recall@1") -> str:
    """Plot one line per name over the epochs 1, 2, ..., as an `<svg>` element."""
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
    """Crop the central square of an image."""
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
    """Return the item nearest the centre of each occupied grid cell, with the cell's column and row."""
    cell = np.minimum((points * cells).astype(int), cells - 1)  # (n, 2)
    distance = np.linalg.norm(points * cells - cell - 0.5, axis=1)
    best: dict[tuple[int, int], int] = {}
    for item in np.argsort(distance, kind="stable").tolist():
        best.setdefault((int(cell[item, 0]), int(cell[item, 1])), item)
    return [(item, position) for position, item in best.items()]


def _svg(width: float, height: float, marks: Sequence[str]) -> str:
    head = f'<svg class="zoom" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">'
    return head + "".join(marks) + "</svg>"


RANDOM_QUERIES, FAILED_QUERIES, N_NEIGHBORS = 6, 4, 8  # rows of the retrieval figure, and neighbours per row
MAX_ON_MAP = 1500
MAX_CLASSES = 500  # rows of the table of classes


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """Images with their embeddings, rows of length 1, shape (n, d)."""

    images: ImageSet
    embeddings: Tensor

    def subset(self, rows: Rows) -> EmbeddedSet:
        """Return the images and embeddings of these rows."""
        return EmbeddedSet(self.images.subset(rows), self.embeddings[torch.from_numpy(rows).to(self.embeddings.device)])


def compute_metrics(embedded: EmbeddedSet, *, nmi: bool = True) -> dict[str, float]:
    """Compute the metrics of a set; Recall@K only for K below the number of images."""
    return retrieval_metrics(embedded.embeddings, embedded.images.labels, nmi=nmi)


def is_measurable(labels: Rows) -> bool:
    """Return whether there are two classes and two images of one of them, as retrieval metrics require."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > 1


def metrics_table(measured: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Format metrics in per cent as rows of text, the header first."""
    names = list(dict.fromkeys(name for metrics in measured.values() for name in metrics))
    rows = [("", *names)]
    for title, metrics in measured.items():
        rows.append((title, *(f"{100 * metrics[name]:.1f}" if name in metrics else "" for name in names)))
    return rows


def format_table(table: Sequence[Sequence[str]]) -> str:
    """Format a table for a terminal, with right-aligned columns."""
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
    """Create the sections of a report.

    Args:
        embedded: images and embeddings of the retrieval figure and the map.
        measured: metrics by the name of their row.
        curves: Recall@1 after each epoch by the name of the set; None without a training.
        skipped: name and reason of each image that could not be read.
        seed: random seed of the choice of queries and of the map.

    Returns:
        The sections, in the order of the page.
    """
    lead = (
        "Recall@K: percentage of queries with an image of their class among the K most similar images. R-precision and "
        "MAP@R use as many neighbours as the class has other images. NMI compares k-means clusters with the classes."
    )
    sections = [Section("Metrics", lead, wide=[Block(table=metrics_table(measured)), _class_counts(embedded)])]
    if curves:
        text = "A curve of the training images far above the others indicates overfitting."
        sections.append(Section("Training", text, blocks=[Block(figure=plot_training_curves(curves))]))
    sections += [_queries(embedded, seed), _map(embedded, seed)]
    if skipped:
        rows = [("item", "reason"), *skipped]
        sections.append(Section("Skipped images", "These images could not be read.", wide=[Block(table=rows)]))
    return sections


def _class_counts(embedded: EmbeddedSet) -> Block:
    labels, counts = np.unique(embedded.images.labels, return_counts=True)
    rows = [(embedded.images.class_names[label], str(n)) for label, n in zip(labels, counts, strict=True)]
    return Block("Images of each class below", table=[("class", "images"), *rows[:MAX_CLASSES]])


def _queries(embedded: EmbeddedSet, seed: int) -> Section:
    labels = embedded.images.labels
    order = np.random.default_rng(seed).permutation(len(labels))[:1000]
    neighbors = _neighbors(embedded.embeddings, order)  # (queries, k)
    failed = np.flatnonzero(labels[neighbors[:, 0]] != labels[order])
    failed = failed[failed >= RANDOM_QUERIES][:FAILED_QUERIES]
    selected = np.concatenate([np.arange(min(RANDOM_QUERIES, len(order))), failed])
    names = [embedded.images.class_names[label] for label in labels]
    picture = draw_retrieval(embedded.images.image, order[selected].tolist(), neighbors[selected], names)
    lead = "The query is on the left, then the most similar images: green frames mark its class, red ones others."
    if len(failed):
        lead += f" The first {RANDOM_QUERIES} queries are drawn at random, the others from those whose nearest image is"
        lead += " of another class."
    return Section("Retrieval results", lead, wide=[Block(figure=picture)])


def _map(embedded: EmbeddedSet, seed: int) -> Section:
    n = len(embedded.images)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:MAX_ON_MAP])
    if len(rows) < 4:
        return Section("Map", "A map requires four or more images.")
    subset = embedded.subset(rows)
    names = [subset.images.class_names[label] for label in subset.images.labels]
    picture = draw_map(subset.images.image, tsne_positions(subset.embeddings.cpu().numpy(), seed=seed), names)
    lead = f"t-SNE places similar images close together; colours denote classes. {len(rows)} of {n} images."
    return Section("Map", lead, wide=[Block(figure=picture, legend=True)])


def _neighbors(embeddings: Tensor, queries: Rows) -> Rows:
    """Return the nearest neighbours of each query by cosine, shape (queries, k), most similar first."""
    rows = torch.from_numpy(queries).to(embeddings.device)
    cosines = embeddings[rows] @ embeddings.T  # (queries, n)
    cosines.scatter_(1, rows[:, None], -torch.inf)
    neighbors: Rows = cosines.topk(min(N_NEIGHBORS, len(embeddings) - 1), dim=1).indices.cpu().numpy()
    return neighbors
