"""Pipeline of the command `embed search`, and the indices of embeddings that it stores in the folder of a run.

Each image set has an index file `index-DIGEST.safetensors`; the most recently used ones are retained.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from entourage.data.image_set import ImageSet
from entourage.data.labels import ItemMatcher
from entourage.data.media import UnreadableImageError, read_image
from entourage.data.pixels import decode_pixels
from entourage.embed.data import read_images
from entourage.embed.report import draw_retrieval
from entourage.embed.training.fit import EmbeddedImages, embed_ensemble, embed_images
from entourage.embed.training.run_folder import RunConfig, load_members, read_run_config
from entourage.io.files import check_output_file
from entourage.io.weights import read_weights, write_weights
from entourage.report.page import Block, Section, write_page
from entourage.training.images import ImageBank

MAX_INDEXES = 8  # number of indices that are retained in a run


@dataclass(frozen=True, eq=False)
class EmbeddingIndex:
    """Embeddings of an image set, with names and classes.

    Attributes:
        embeddings: rows of length 1, shape (n, d), float32, on the CPU.
        items: names of the images, length n.
        classes: names of their classes, length n.
        skipped: name and reason of each image that could not be read.
    """

    embeddings: Tensor
    items: list[str]
    classes: list[str]
    skipped: list[tuple[str, str]]

    def nearest(self, queries: Tensor, top_k: int, positions: Sequence[int | None]) -> tuple[Tensor, Tensor]:
        """Return the images that are most similar to each query.

        Args:
            queries: rows of length 1, shape (q, d).
            top_k: number of neighbours of each query, limited to n.
            positions: index of each query among the images, which is excluded from its neighbours, or None.

        Returns:
            Indices and cosines, both of shape (q, min(top_k, n)), most similar first. If all images are requested, an
            excluded query comes last, with a cosine of minus infinity. Costs O(q n d) time.
        """
        cosines = queries @ self.embeddings.T  # (q, n)
        for row, position in enumerate(positions):
            if position is not None:
                cosines[row, position] = -torch.inf
        nearest = cosines.topk(min(top_k, len(self.items)), dim=1)
        return nearest.indices, nearest.values


def load_or_build_index(
    folder: Path, config: RunConfig, images: ImageSet, embed: Callable[[], EmbeddedImages]
) -> EmbeddingIndex:
    """Load the index of an image set from the folder of a run, or build and store it.

    An index that cannot be stored causes a warning.

    Args:
        folder: folder of the run.
        config: configuration of the run; an index of other weights is not used.
        images: the image set.
        embed: returns the embeddings; called only if there is no index.

    Returns:
        The index.
    """
    digest = _digest(config, images)
    path = folder / index_name(digest)
    index = _read(path, digest)
    if index is not None:
        with suppress(OSError):  # marks it as recently used; a read-only folder needs no clean-up
            os.utime(path)
        return index
    index = _index(images, embed())
    try:
        _write(folder, digest, index)
    except OSError as error:
        warnings.warn(f"the index is not stored: cannot write to {folder}: {error.strerror}", stacklevel=2)
    return index


def write_index(folder: Path, config: RunConfig, images: ImageSet, embedded: EmbeddedImages) -> EmbeddingIndex:
    """Create the index of embedded images and store it in the folder of the run."""
    index = _index(images, embedded)
    _write(folder, _digest(config, images), index)
    return index


def index_name(digest: str) -> str:
    """Return the file name of an index."""
    return f"index-{digest[:8]}.safetensors"


def _index(images: ImageSet, embedded: EmbeddedImages) -> EmbeddingIndex:
    positions = embedded.indices.tolist()
    return EmbeddingIndex(
        embedded.embeddings.cpu(),
        [images.items[position] for position in positions],
        [images.class_names[images.labels[position]] for position in positions],
        embedded.skipped,
    )


def _write(folder: Path, digest: str, index: EmbeddingIndex) -> None:
    """Write an index, and remove the least recently used ones beyond `MAX_INDEXES`."""
    metadata = {"images": digest, "items": index.items, "classes": index.classes, "skipped": index.skipped}
    write_weights(folder / index_name(digest), {"embeddings": index.embeddings}, metadata)
    by_use = sorted(folder.glob(index_name("?" * 8)), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in by_use[MAX_INDEXES:]:
        path.unlink(missing_ok=True)


def _read(path: Path, digest: str) -> EmbeddingIndex | None:
    """Read an index; None if the file is missing, damaged, or belongs to other images."""
    try:
        tensors, metadata = read_weights(path)
        if metadata["images"] != digest:
            return None
        skipped = [(name, reason) for name, reason in metadata["skipped"]]
        return EmbeddingIndex(tensors["embeddings"], metadata["items"], metadata["classes"], skipped)
    except (ValueError, KeyError, TypeError):
        return None


def _digest(config: RunConfig, images: ImageSet) -> str:
    names = [images.class_names[label] for label in images.labels.tolist()]
    identity = json.dumps([config.weights, images.source.digest(), images.items, names])
    return hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Hit(NamedTuple):
    """A neighbour of a query: name, class and cosine similarity."""

    item: str
    label: str
    cosine: float


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        hits: each query, as passed, with its neighbours, most similar first.
        skipped: name and reason of each image of the data that could not be read.
    """

    hits: list[tuple[str, list[Hit]]]
    skipped: list[tuple[str, str]]


class _Query(NamedTuple):
    """A query with either the item of the data or the image file that it denotes."""

    name: str
    item: str | None
    file: Path | None


def search_run(
    run_dir: Path,
    data: str,
    queries: Sequence[str],
    *,
    top_k: int = 8,
    out: Path | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> SearchResult:
    """Find the images that are most similar to each query, by a stored index or one that is built and stored.

    Args:
        run_dir: folder of a trained run.
        data: images to search: a folder of images, a pack, or the name of a data set.
        queries: image files, or items of the data.
        top_k: number of neighbours of each query.
        out: HTML file for a figure of the result, or None.
        device: device to compute on.
        progress: whether to show progress bars; None: only on a terminal.

    Returns:
        The neighbours of each query, and the images of the data that could not be read.

    Raises:
        ValueError: the run or the data does not exist, a query is neither an item nor an image, or `out` cannot be
            written.
    """
    if out is not None:
        check_output_file(out, ".html", run_dir.rglob("*.html"))
    config = read_run_config(run_dir)
    images = read_images(data)
    resolved = _resolve(queries, data, images.items)  # errors are raised before images are embedded
    side = config.recipe.decoded_side
    pixels = _decode(resolved, side)
    index = load_or_build_index(
        run_dir,
        config,
        images,
        lambda: embed_images(load_members(run_dir, config, device), images, side, progress=progress),
    )
    positions = _positions(index, resolved, data)
    vectors = _vectors(run_dir, config, index, positions, pixels, device)  # (q, d)
    neighbors, cosines = index.nearest(vectors, top_k, positions)
    hits = [
        (query.name, [Hit(index.items[i], index.classes[i], c) for i, c in pairs if i != itself])
        for query, itself, pairs in zip(resolved, positions, _paired(neighbors, cosines), strict=True)
    ]
    if out is not None:
        others = len(index.items) - any(position is not None for position in positions)  # without the query itself
        _write_page(out, images, index, resolved, positions, neighbors[:, :others])
    return SearchResult(hits, index.skipped)


def _paired(neighbors: Tensor, cosines: Tensor) -> list[list[tuple[int, float]]]:
    """Pair neighbours with their cosines, per query."""
    return [list(zip(*row, strict=True)) for row in zip(neighbors.tolist(), cosines.tolist(), strict=True)]


def _resolve(names: Sequence[str], data: str, items: Sequence[str]) -> list[_Query]:
    """Match each query with an item by its full path, otherwise a file, otherwise an item by the end of its path."""
    item_set, matcher = set(items), ItemMatcher(items)
    queries = []
    for name in names:
        item = _relative_path(name, data)
        if item not in item_set and Path(name).is_file():
            queries.append(_Query(name, None, Path(name)))
            continue
        matches = matcher.find(item)
        if not matches:
            raise ValueError(f"query {name!r}: not found; expected an item of {data} or an image file")
        if len(matches) > 1:
            candidates = f"{matches[0]!r} and {matches[1]!r} of {data}"
            raise ValueError(f"query {name!r}: matches {candidates}; expected a longer part of the path")
        queries.append(_Query(name, matches[0], None))
    return queries


def _decode(queries: Sequence[_Query], side: int) -> NDArray[np.uint8]:
    """Decode the queries that are files, shape (f, side, side, 3)."""
    files = [query.file for query in queries if query.file is not None]
    pixels = decode_pixels(files, (side, side), progress=False)
    if pixels.failures:
        raise UnreadableImageError(*pixels.failures[0])
    return pixels.values


def _positions(index: EmbeddingIndex, queries: Sequence[_Query], data: str) -> list[int | None]:
    """Return the position of each query in the index; None for a file."""
    skipped = dict(index.skipped)
    for query in queries:
        if query.item in skipped:
            raise ValueError(f"query {query.name!r}: unreadable ({skipped[query.item]}); expected a readable image")
    positions = {item: position for position, item in enumerate(index.items)}
    return [None if query.item is None else positions[query.item] for query in queries]


def _relative_path(name: str, data: str) -> str:
    """Return the path of a file relative to the folder of the data; names that are not such a file are unchanged."""
    file, folder = Path(name).resolve(), Path(data).resolve()
    return file.relative_to(folder).as_posix() if file.is_file() and file.is_relative_to(folder) else name


def _vectors(
    run_dir: Path,
    config: RunConfig,
    index: EmbeddingIndex,
    positions: Sequence[int | None],
    pixels: NDArray[np.uint8],
    device: str,
) -> Tensor:
    """Return the embeddings of the queries, shape (q, d); networks are loaded only if some are not in the index."""
    vectors = index.embeddings.new_empty(len(positions), index.embeddings.shape[1])
    for row, position in enumerate(positions):
        if position is not None:
            vectors[row] = index.embeddings[position]
    rows = [row for row, position in enumerate(positions) if position is None]
    if rows:
        members = load_members(run_dir, config, device)
        vectors[rows] = embed_ensemble(members, ImageBank(pixels), np.arange(len(rows))).cpu()
    return vectors


def _write_page(
    path: Path,
    images: ImageSet,
    index: EmbeddingIndex,
    queries: Sequence[_Query],
    positions: Sequence[int | None],
    neighbors: Tensor,
) -> None:
    row_of = {item: row for row, item in enumerate(images.items)}
    n = len(index.items)  # numbers from n on denote queries that are files

    def get_image(number: int) -> Image.Image:
        file = queries[number - n].file if number >= n else None
        return images.image(row_of[index.items[number]]) if file is None else read_image(file)

    numbers = [n + row if position is None else position for row, position in enumerate(positions)]
    figure = draw_retrieval(get_image, numbers, neighbors.numpy(), [*index.classes, *(None for _ in queries)])
    lead = "The query is on the left, followed by the images found, most similar first."
    names = ", ".join(query.name for query in queries)
    write_page(path, f"Search in {images.name}", names, [Section("Images found", lead, wide=[Block(figure=figure)])])
