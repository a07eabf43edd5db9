"""The report on embeddings: a table of metrics, what queries find, a map of all items, the course of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from entourage.data.image_set import ImageSet
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.represent import Rows
from entourage.embed.show import map_picture, retrieval_picture, training_curves, tsne_positions
from entourage.report.page import Block, Section

RANDOM_QUERIES, FAILED_QUERIES, FOUND = 6, 4, 8  # rows of the retrieval picture, and neighbours of each
MOST_ON_MAP = 1500
K = (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class Embedded:
    """Images with their embeddings, rows of length 1, shape (n, d)."""

    images: ImageSet
    embeddings: Tensor

    def part(self, rows: Rows) -> Embedded:
        """Some of them."""
        return Embedded(self.images.subset(rows), self.embeddings[torch.from_numpy(rows).to(self.embeddings.device)])


def measure(embedded: Embedded, *, nmi: bool = True) -> dict[str, float]:
    """The metrics of a set, with Recall@K only for as many neighbours as there are."""
    k = [at for at in K if at < len(embedded.images)]
    return retrieval_metrics(embedded.embeddings, embedded.images.labels, k or [1], nmi=nmi)


def measurable(labels: Rows) -> bool:
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


def aligned(table: Sequence[Sequence[str]]) -> str:
    """A table for a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(lines)


def embedding_sections(
    embedded: Embedded,
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
        sections.append(Section("The training", text, blocks=[Block(figure=training_curves(curves))]))
    sections += [_queries(embedded, seed), _map(embedded, seed)]
    if skipped:
        rows = [("item", "reason"), *skipped]
        sections.append(Section("Skipped", "These images could not be read.", wide=[Block(table=rows)]))
    return sections


def _queries(embedded: Embedded, seed: int) -> Section:
    labels = embedded.images.labels
    order = np.random.default_rng(seed).permutation(len(labels))[:1000]
    found = _neighbours(embedded.embeddings, order)  # (queries, k)
    failed = np.flatnonzero(labels[found[:, 0]] != labels[order])
    failed = failed[failed >= RANDOM_QUERIES][:FAILED_QUERIES]
    shown = np.concatenate([np.arange(min(RANDOM_QUERIES, len(order))), failed])
    names = [embedded.images.class_names[label] for label in labels]
    picture = retrieval_picture(embedded.images.image, order[shown].tolist(), found[shown], names)
    lead = "The query on the left, then the most similar images: green frames are of its class, red ones of another."
    if len(failed):
        lead += f" The first {RANDOM_QUERIES} queries are drawn at random, the others from those that fail."
    return Section("What queries find", lead, wide=[Block(figure=picture)])


def _map(embedded: Embedded, seed: int) -> Section:
    n = len(embedded.images)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:MOST_ON_MAP])
    if len(rows) < 4:
        return Section("A map", "Four images or more could be shown on a map.")
    some = embedded.part(rows)
    names = [some.images.class_names[label] for label in some.images.labels]
    picture = map_picture(some.images.image, tsne_positions(some.embeddings.cpu().numpy(), seed=seed), names)
    lead = f"t-SNE lays similar images side by side; frames and dots are coloured by class. {len(rows)} of {n} images."
    return Section("A map", lead, wide=[Block(figure=picture)])


def _neighbours(embeddings: Tensor, queries: Rows) -> Rows:
    """The most similar others of each query, shape (queries, k), most similar first."""
    places = torch.from_numpy(queries).to(embeddings.device)
    cosines = embeddings[places] @ embeddings.T  # (queries, n)
    cosines.scatter_(1, places[:, None], -torch.inf)
    found: Rows = cosines.topk(min(FOUND, len(embeddings) - 1), dim=1).indices.cpu().numpy()
    return found
