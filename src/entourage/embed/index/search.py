"""Pipeline of the command `embed search`: queries to a table of results and a page with pictures.

A run of `embed train` stores an index for each image set that it has searched, in the folder `index-DIGEST`; the most
recently used ones are retained.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from entourage.data.image_set import ImageSet
from entourage.data.media import read_image
from entourage.embed.data import read_images
from entourage.embed.index.build import update_images
from entourage.embed.index.embedder import Embedder, run_fingerprint
from entourage.embed.index.queries import Query, query_vectors, resolve_queries
from entourage.embed.index.source import ImageCollection
from entourage.embed.index.storage import CURRENT_FILE
from entourage.embed.index.vector_index import Hit, Index
from entourage.embed.report import draw_retrieval
from entourage.embed.training.fit import EmbeddedImages
from entourage.embed.training.run_folder import read_run_config
from entourage.io.files import atomic_path, check_output_file
from entourage.io.fingerprint import fingerprint
from entourage.report.page import Block, Section, write_page

MAX_INDEXES = 8  # number of indices that are retained in a run
COLUMNS = ("query", "rank", "cosine", "label", "item", "path")


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        hits: each query, as passed, with its neighbours, most similar first.
        skipped: name and reason of each image of the data that could not be read.
        paths: file of each item that is a file, for those that were found.
    """

    hits: list[tuple[str, list[Hit]]]
    skipped: list[tuple[str, str]]
    paths: dict[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of `COLUMNS` for each hit."""
        return [
            {
                "query": query,
                "rank": rank,
                "cosine": round(hit.cosine, 6),
                "label": hit.label,
                "item": hit.item,
                "path": self.paths.get(hit.item, ""),
            }
            for query, hits in self.hits
            for rank, hit in enumerate(hits, start=1)
        ]


def search_index(
    index: str | Path | Index,
    queries: Sequence[str],
    *,
    top_k: int = 8,
    threshold: float | None = None,
    out: Path | None = None,
    csv_file: Path | None = None,
    device: str = "auto",
) -> SearchResult:
    """Find the items of an index that are most similar to each query.

    Args:
        index: the index, or its folder.
        queries: items, image files, folders, patterns or files of vectors, see `resolve_queries`.
        top_k: number of items to find for each query.
        threshold: smallest cosine of an item; None for any.
        out: HTML file for a figure of the result, or None.
        csv_file: CSV file for the result, or None.
        device: device of the network.

    Returns:
        The neighbours of each query.

    Raises:
        ValueError: the index is not valid, a query is not found or unreadable, or an output file is not valid.
    """
    opened = index if isinstance(index, Index) else Index.load(index, device=device)
    for file, suffix in ((out, ".html"), (csv_file, ".csv")):
        if file is not None:
            check_output_file(file, suffix, [Path(name) for name in queries])
    skipped = opened.version.skipped
    names = [*opened.items, *(name for name, _ in skipped)]
    resolved = resolve_queries(queries, names, opened.version.source)
    vectors = query_vectors(resolved, opened.vectors, opened.row_of, lambda: opened.embedder, skipped)
    own = [None if query.item is None else opened.row_of[query.item] for query in resolved]
    hits = opened.search(vectors, top_k, threshold, exclude=own)
    result = SearchResult(
        [(query.name, found) for query, found in zip(resolved, hits, strict=True)], skipped, _paths(opened, hits)
    )
    if out is not None:
        _write_result_page(out, opened, resolved, hits)
    if csv_file is not None:
        _write_csv(csv_file, result)
    return result


def search_run(
    run_dir: Path,
    data: str,
    queries: Sequence[str],
    *,
    top_k: int = 8,
    threshold: float | None = None,
    out: Path | None = None,
    csv_file: Path | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> SearchResult:
    """Find the images that are most similar to each query, by an index in the folder of a run.

    The index is built or updated first, if necessary.

    Args:
        run_dir: folder of a trained run.
        data: images to search: a folder of images, an image archive (.npz), or the name of a data set.
        queries: see `search_index`.
        top_k: number of neighbours of each query.
        threshold: smallest cosine of an item; None for any.
        out: HTML file for a figure of the result, or None.
        csv_file: CSV file for the result, or None.
        device: device to compute on.
        progress: whether to show progress bars; None: only on a terminal.

    Returns:
        The neighbours of each query, and the images of the data that could not be read.

    Raises:
        ValueError: the run or the data does not exist, a query is neither an item nor an image, or an output file
            cannot be written.
    """
    if out is not None:
        check_output_file(out, ".html", run_dir.rglob("*.html"))
    read_run_config(run_dir)
    images = read_images(data)
    source = source_name(data)
    for query in resolve_queries(queries, images.items, source):  # errors are raised before images are embedded
        if query.file is not None:
            read_image(query.file, shorter_side=1)
    index = open_run_index(run_dir, images, source, device=device, progress=progress)
    return search_index(index, queries, top_k=top_k, threshold=threshold, out=out, csv_file=csv_file, device=device)


def open_run_index(
    run_dir: Path,
    images: ImageSet,
    source: str,
    *,
    embedded: EmbeddedImages | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Index:
    """Open the index of an image set in the folder of a run, after building or updating it.

    An index that cannot be stored causes a warning.

    Args:
        run_dir: folder of a trained run.
        images: the image set.
        source: where it was read from.
        embedded: its embeddings, if they are known already.
        device: device to compute on.
        progress: whether to show progress bars; None: only on a terminal.

    Returns:
        The index.
    """
    config = read_run_config(run_dir)
    collection = ImageCollection.from_image_set(images)
    folder = run_dir / index_name(source)

    def build(target: Path) -> Index:
        update_images(
            target,
            collection,
            lambda: Embedder.from_run(run_dir, device),
            model=str(run_dir.resolve()),
            fingerprint=run_fingerprint(config),
            source=source,
            embedded=embedded,
            on_mismatch="restart",
            progress=progress,
        )
        index = Index.load(target, device=device)
        index.__dict__["collection"] = collection  # the data set is not read again
        return index

    try:
        index = build(folder)
        _retain(run_dir, folder)
    except OSError as error:
        warnings.warn(f"the index is not stored: cannot write to {run_dir}: {error.strerror}", stacklevel=2)
        with tempfile.TemporaryDirectory() as temporary:  # the vectors stay mapped after it is deleted
            index = build(Path(temporary) / "index")
    return index


def index_name(source: str) -> str:
    """Return the folder name of the index of a source in a run."""
    return f"index-{fingerprint(source, size=4)}"


def _retain(run_dir: Path, used: Path) -> None:
    """Mark an index as recently used, and remove the least recently used ones beyond `MAX_INDEXES`."""
    with suppress(OSError):  # a read-only folder needs no clean-up
        os.utime(used / CURRENT_FILE)
    folders = [path.parent for path in run_dir.glob(f"index-{'?' * 8}/{CURRENT_FILE}")]
    by_use = sorted(folders, key=lambda path: (path / CURRENT_FILE).stat().st_mtime_ns, reverse=True)
    for folder in by_use[MAX_INDEXES:]:
        shutil.rmtree(folder, ignore_errors=True)


def source_name(data: str) -> str:
    """Return the absolute path of image data, or the name of a data set."""
    return str(Path(data).resolve()) if Path(data).exists() else data


def _paths(index: Index, hits: Sequence[Sequence[Hit]]) -> dict[str, str]:
    """Return the files of the items that were found, if the items are files."""
    source = Path(index.version.source)
    folder = source if source.is_dir() else source.parent if source.suffix.lower() == ".csv" else None
    items = {hit.item for found in hits for hit in found}
    return {} if folder is None else {item: str(folder / item) for item in items if (folder / item).is_file()}


def _write_csv(path: Path, result: SearchResult) -> None:
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file,
    ):
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(result.rows())


def _write_result_page(path: Path, index: Index, queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> None:
    names = ", ".join(query.name for query in queries)
    title = f"Search in {index.version.source}"
    figure = draw_items(index, queries, [[hit.item for hit in found] for found in hits])
    lead = "The query is on the left, followed by the items found, most similar first."
    block = Block(figure=figure) if figure else Block(table=_table(queries, hits))
    write_page(path, title, names, [Section("Items found", lead, wide=[block])])


def _table(queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("query", "cosine", "item")]
    for query, found in zip(queries, hits, strict=True):
        rows += [(query.name, f"{hit.cosine:.3f}", hit.item) for hit in found]
    return rows


def draw_items(index: Index, queries: Sequence[Query], found: Sequence[Sequence[str]]) -> str:
    """Draw queries with the items found for each; "" if the items are no images any more.

    Args:
        index: the index.
        queries: items or image files; a vector is drawn as an empty picture.
        found: names of the items found for each query.

    Returns:
        An `<svg>` element, see `draw_retrieval`.
    """
    try:
        collection = index.collection
    except ValueError:  # the source does not exist any more
        collection = None
    if collection is None:
        return ""
    position = {item: row for row, item in enumerate(collection.items)}
    items = [query.item for query in queries]
    shown = sorted({item for row in found for item in row} | {item for item in items if item is not None})
    number = {item: row for row, item in enumerate(shown)}
    labels: list[str | None] = [None if index.labels is None else index.labels[index.row_of[item]] for item in shown]
    getters: list[Callable[[], Image.Image]] = [
        lambda item=item: collection.source.read(position[item]) if item in position else _EMPTY  # type: ignore[misc]
        for item in shown
    ]
    numbers = []
    for query in queries:
        numbers.append(number[query.item] if query.item is not None else len(getters))
        if query.item is None:
            labels.append(None)
            getters.append(lambda file=query.file: _EMPTY if file is None else read_image(file))  # type: ignore[misc]
    width = max((len(row) for row in found), default=0)
    empty = len(getters)
    getters.append(lambda: _EMPTY)
    labels.append(None)
    neighbors = [[number[item] for item in row] + [empty] * (width - len(row)) for row in found]
    table = np.array(neighbors, dtype=np.int64).reshape(len(queries), width)
    return draw_retrieval(lambda one: getters[one](), numbers, table, labels)


_EMPTY = Image.new("RGB", (8, 8), "white")
