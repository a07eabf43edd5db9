"""The embeddings of a set of images, kept beside the networks that made them, so that a search answers at once.

Each set that was searched has a file of its own, `index-DIGEST.safetensors`; the last few are kept.

The way of `embed search`: which images of a set are most like a query.
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

MAX_INDEXES = 8  # sets of images whose index a run keeps


@dataclass(frozen=True, eq=False)
class EmbeddingIndex:
    """Embedded images.

    Attributes:
        embeddings: rows of length 1, shape (n, d), float32, on the CPU.
        items: their names, n of them.
        classes: the name of each one's class.
        skipped: name and reason of each image that could not be read.
    """

    embeddings: Tensor
    items: list[str]
    classes: list[str]
    skipped: list[tuple[str, str]]

    def nearest(self, queries: Tensor, top_k: int, positions: Sequence[int | None]) -> tuple[Tensor, Tensor]:
        """What is most similar to each query.

        Args:
            queries: rows of length 1, shape (q, d).
            top_k: number of neighbours to return; fewer where there are fewer.
            positions: the position of each query among the images, which it does not find, or None.

        Returns:
            Places and cosines, both shape (q, count), most similar first; where all images are asked for, a query that
            is one of them finds itself last, with a cosine of minus infinity. Costs O(q n d) time.
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
    """The index of these images in a run's folder, made anew if there is none or the networks are others.

    If it cannot be kept there, a warning says so.

    Args:
        folder: of the run.
        config: of the run.
        images: all that can be found.
        embed: embeds them; called only if it must be.
    """
    digest = _digest(config, images)
    path = folder / index_name(digest)
    index = _read(path, digest)
    if index is not None:
        with suppress(OSError):  # in a folder that is only read, none is ever removed
            os.utime(path)
        return index
    index = _index(images, embed())
    try:
        _write(folder, digest, index)
    except OSError as error:
        warnings.warn(f"the index is not kept: cannot write to {folder}: {error.strerror}", stacklevel=2)
    return index


def write_index(folder: Path, config: RunConfig, images: ImageSet, embedded: EmbeddedImages) -> EmbeddingIndex:
    """Keep embedded images in a run's folder."""
    index = _index(images, embedded)
    _write(folder, _digest(config, images), index)
    return index


def index_name(digest: str) -> str:
    """The file of a set of images."""
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
    """Write an index; those that were used longest ago make room for it."""
    metadata = {"images": digest, "items": index.items, "classes": index.classes, "skipped": index.skipped}
    write_weights(folder / index_name(digest), {"embeddings": index.embeddings}, metadata)
    by_use = sorted(folder.glob(index_name("?" * 8)), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in by_use[MAX_INDEXES:]:
        path.unlink(missing_ok=True)


def _read(path: Path, digest: str) -> EmbeddingIndex | None:
    """The index, or None if it is missing, of other images, or no index."""
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
    """An image that was found."""

    item: str
    label: str
    cosine: float


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: each query, as it was given, with the most similar images, most similar first.
        skipped: name and reason of each image of the data that could not be read.
    """

    hits: list[tuple[str, list[Hit]]]
    skipped: list[tuple[str, str]]


class _Query(NamedTuple):
    """A query: the item it means, or else its file."""

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
    """Find what is most like each query, at once if the run has an index of the same images, otherwise making it.

    Args:
        run_dir: folder of a trained run.
        data: the images to search: a folder of images, a pack, or the name of a data set.
        queries: image files, or items of the data.
        top_k: number of images to find for each query.
        out: HTML file for a picture of the result, or None.
        device: where to compute.
        progress: show bars; None: only on a terminal.

    Raises:
        ValueError: there is no run or no such data, a query is neither an item nor an image, or the page cannot be
            written.
    """
    if out is not None:
        check_output_file(out, ".html", run_dir.rglob("*.html"))
    config = read_run_config(run_dir)
    images = read_images(data)
    resolved = _resolve(queries, data, images.items)  # before anything is embedded, which may take long
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
        others = len(index.items) - any(
            position is not None for position in positions
        )  # an item is not its own neighbour
        _write_page(out, images, index, resolved, positions, neighbors[:, :others])
    return SearchResult(hits, index.skipped)


def _paired(neighbors: Tensor, cosines: Tensor) -> list[list[tuple[int, float]]]:
    """For each query the places it found with their cosines, most similar first."""
    return [list(zip(*row, strict=True)) for row in zip(neighbors.tolist(), cosines.tolist(), strict=True)]


def _resolve(names: Sequence[str], data: str, items: Sequence[str]) -> list[_Query]:
    """What each query means: an item by its whole path, or else a file, or else an item by the end of its path."""
    item_set, matcher = set(items), ItemMatcher(items)
    queries = []
    for name in names:
        item = _relative_path(name, data)
        if item not in item_set and Path(name).is_file():
            queries.append(_Query(name, None, Path(name)))
            continue
        matches = matcher.find(item)
        if not matches:
            raise ValueError(f"query {name!r} is no item of {data}, nor an image file")
        if len(matches) > 1:
            candidates = f"{matches[0]!r} or {matches[1]!r} of {data}"
            raise ValueError(f"query {name!r} may mean {candidates}; expected more of its path")
        queries.append(_Query(name, matches[0], None))
    return queries


def _decode(queries: Sequence[_Query], side: int) -> NDArray[np.uint8]:
    """The images of those queries that are files, shape (f, side, side, 3)."""
    files = [query.file for query in queries if query.file is not None]
    pixels = decode_pixels(files, (side, side), progress=False)
    if pixels.failures:
        raise UnreadableImageError(*pixels.failures[0])
    return pixels.values


def _positions(index: EmbeddingIndex, queries: Sequence[_Query], data: str) -> list[int | None]:
    """Where each query is in the index; None for a file."""
    skipped = dict(index.skipped)
    for query in queries:
        if query.item in skipped:
            raise ValueError(f"query {query.name!r} is no item of {data} that could be read: {skipped[query.item]}")
    positions = {item: position for position, item in enumerate(index.items)}
    return [None if query.item is None else positions[query.item] for query in queries]


def _relative_path(name: str, data: str) -> str:
    """The path of a file below the folder of the data, where it lies there; otherwise the name as it is."""
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
    """Embeddings of the queries, shape (q, d); networks are loaded only for those that the index does not hold."""
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
    n = len(index.items)  # queries from outside follow after all items

    def picture(number: int) -> Image.Image:
        file = queries[number - n].file if number >= n else None
        return images.image(row_of[index.items[number]]) if file is None else read_image(file)

    numbers = [n + row if position is None else position for row, position in enumerate(positions)]
    figure = draw_retrieval(picture, numbers, neighbors.numpy(), [*index.classes, *(None for _ in queries)])
    lead = "The query on the left, then the most similar images, most similar first."
    names = ", ".join(query.name for query in queries)
    write_page(path, f"Search in {images.name}", names, [Section("What was found", lead, wide=[Block(figure=figure)])])
