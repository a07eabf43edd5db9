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
from entourage.embed.report import retrieval_picture
from entourage.embed.training.fit import EmbeddedImages, embed_ensemble, embed_images
from entourage.embed.training.run_folder import RunConfig, load_members, read_config
from entourage.io.files import check_output_file
from entourage.io.weights import read_weights, write_weights
from entourage.report.page import Block, Section, write_page
from entourage.training.images import ImageBank

KEPT = 8  # sets of images whose index a run keeps


@dataclass(frozen=True, eq=False)
class Index:
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

    def nearest(self, queries: Tensor, count: int, own: Sequence[int | None]) -> tuple[Tensor, Tensor]:
        """What is most similar to each query.

        Args:
            queries: rows of length 1, shape (q, d).
            count: how many to find; fewer are found where there are fewer.
            own: the place of each query among the images, which it does not find, or None.

        Returns:
            Places and cosines, both shape (q, count), most similar first; where all images are asked for, a query that
            is one of them finds itself last, with a cosine of minus infinity. Costs O(q n d) time.
        """
        cosines = queries @ self.embeddings.T  # (q, n)
        for row, place in enumerate(own):
            if place is not None:
                cosines[row, place] = -torch.inf
        found = cosines.topk(min(count, len(self.items)), dim=1)
        return found.indices, found.values


def find_index(folder: Path, config: RunConfig, images: ImageSet, embed: Callable[[], EmbeddedImages]) -> Index:
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


def write_index(folder: Path, config: RunConfig, images: ImageSet, embedded: EmbeddedImages) -> Index:
    """Keep embedded images in a run's folder."""
    index = _index(images, embedded)
    _write(folder, _digest(config, images), index)
    return index


def index_name(digest: str) -> str:
    """The file of a set of images."""
    return f"index-{digest[:8]}.safetensors"


def _index(images: ImageSet, embedded: EmbeddedImages) -> Index:
    places = embedded.kept.tolist()
    return Index(
        embedded.embeddings.cpu(),
        [images.items[place] for place in places],
        [images.class_names[images.labels[place]] for place in places],
        embedded.skipped,
    )


def _write(folder: Path, digest: str, index: Index) -> None:
    """Write an index; those that were used longest ago make room for it."""
    notes = {"images": digest, "items": index.items, "classes": index.classes, "skipped": index.skipped}
    write_weights(folder / index_name(digest), {"embeddings": index.embeddings}, notes)
    used = sorted(folder.glob(index_name("?" * 8)), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in used[KEPT:]:
        path.unlink(missing_ok=True)


def _read(path: Path, digest: str) -> Index | None:
    """The index, or None if it is missing, of other images, or no index."""
    try:
        tensors, notes = read_weights(path)
        if notes["images"] != digest:
            return None
        skipped = [(name, reason) for name, reason in notes["skipped"]]
        return Index(tensors["embeddings"], notes["items"], notes["classes"], skipped)
    except (ValueError, KeyError, TypeError):
        return None


def _digest(config: RunConfig, images: ImageSet) -> str:
    names = [images.class_names[label] for label in images.labels.tolist()]
    told = json.dumps([config.weights, images.source.digest(), images.items, names])
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class SearchJob:
    """What is looked for, and where.

    Attributes:
        run: the folder of a trained run.
        data: what is searched: a folder of images, a pack, or the name of a data set.
        queries: image files, or items of the data.
        count: how many images to find for each.
        page: an HTML file for the picture, or None.
        device: where to compute.
        progress: show bars; None: only on a terminal.
    """

    run: Path
    data: str
    queries: Sequence[str]
    count: int = 8
    page: Path | None = None
    device: str = "auto"
    progress: bool | None = None


class Hit(NamedTuple):
    """An image that was found."""

    item: str
    label: str
    cosine: float


@dataclass(frozen=True)
class Answer:
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


def search_run(job: SearchJob) -> Answer:
    """Find what is most like each query, at once if the run has an index of the same images, otherwise making it.

    Raises:
        ValueError: there is no run or no such data, a query is neither an item nor an image, or the page cannot be
            written.
    """
    if job.page is not None:
        check_output_file(job.page, ".html", job.run.rglob("*.html"))
    config = read_config(job.run)
    images = read_images(job.data)
    queries = _resolve(job, images.items)  # before anything is embedded, which may take long
    side = config.recipe.decoded_side
    pixels = _decode(queries, side)
    index = find_index(
        job.run,
        config,
        images,
        lambda: embed_images(load_members(job.run, config, job.device), images, side, progress=job.progress),
    )
    own = _places(job, index, queries)
    vectors = _vectors(job, config, index, own, pixels)  # (q, d)
    places, cosines = index.nearest(vectors, job.count, own)
    hits = [
        (query.name, [Hit(index.items[i], index.classes[i], c) for i, c in found if i != itself])
        for query, itself, found in zip(queries, own, _paired(places, cosines), strict=True)
    ]
    if job.page is not None:
        others = len(index.items) - any(place is not None for place in own)  # nobody is shown as its own neighbour
        _write_page(job.page, images, index, queries, own, places[:, :others])
    return Answer(hits, index.skipped)


def _paired(places: Tensor, cosines: Tensor) -> list[list[tuple[int, float]]]:
    """For each query the places it found with their cosines, most similar first."""
    return [list(zip(*row, strict=True)) for row in zip(places.tolist(), cosines.tolist(), strict=True)]


def _resolve(job: SearchJob, items: Sequence[str]) -> list[_Query]:
    """What each query means: an item by its whole path, or else a file, or else an item by the end of its path."""
    known, matcher = set(items), ItemMatcher(items)
    queries = []
    for name in job.queries:
        item = _below(name, job.data)
        if item not in known and Path(name).is_file():
            queries.append(_Query(name, None, Path(name)))
            continue
        found = matcher.find(item)
        if not found:
            raise ValueError(f"query {name!r} is no item of {job.data}, nor an image file")
        if len(found) > 1:
            meant = f"{found[0]!r} or {found[1]!r} of {job.data}"
            raise ValueError(f"query {name!r} may mean {meant}; expected more of its path")
        queries.append(_Query(name, found[0], None))
    return queries


def _decode(queries: Sequence[_Query], side: int) -> NDArray[np.uint8]:
    """The images of those queries that are files, shape (f, side, side, 3)."""
    files = [query.file for query in queries if query.file is not None]
    pixels = decode_pixels(files, (side, side), progress=False)
    if pixels.failures:
        raise UnreadableImageError(*pixels.failures[0])
    return pixels.values


def _places(job: SearchJob, index: Index, queries: Sequence[_Query]) -> list[int | None]:
    """Where each query is in the index; None for a file."""
    skipped = dict(index.skipped)
    for query in queries:
        if query.item in skipped:
            raise ValueError(f"query {query.name!r} is no item of {job.data} that could be read: {skipped[query.item]}")
    places = {item: place for place, item in enumerate(index.items)}
    return [None if query.item is None else places[query.item] for query in queries]


def _below(name: str, data: str) -> str:
    """The path of a file below the folder of the data, where it lies there; otherwise the name as it is."""
    file, folder = Path(name).resolve(), Path(data).resolve()
    return file.relative_to(folder).as_posix() if file.is_file() and file.is_relative_to(folder) else name


def _vectors(
    job: SearchJob, config: RunConfig, index: Index, places: Sequence[int | None], pixels: NDArray[np.uint8]
) -> Tensor:
    """Embeddings of the queries, shape (q, d); networks are loaded only for those that the index does not hold."""
    vectors = index.embeddings.new_empty(len(places), index.embeddings.shape[1])
    for row, place in enumerate(places):
        if place is not None:
            vectors[row] = index.embeddings[place]
    rows = [row for row, place in enumerate(places) if place is None]
    if rows:
        members = load_members(job.run, config, job.device)
        vectors[rows] = embed_ensemble(members, ImageBank(pixels), np.arange(len(rows))).cpu()
    return vectors


def _write_page(
    path: Path, images: ImageSet, index: Index, queries: Sequence[_Query], own: Sequence[int | None], places: Tensor
) -> None:
    at = {item: place for place, item in enumerate(images.items)}
    n = len(index.items)  # queries from outside follow after all items

    def picture(number: int) -> Image.Image:
        file = queries[number - n].file if number >= n else None
        return images.image(at[index.items[number]]) if file is None else read_image(file)

    numbers = [n + row if place is None else place for row, place in enumerate(own)]
    figure = retrieval_picture(picture, numbers, places.numpy(), [*index.classes, *(None for _ in queries)])
    lead = "The query on the left, then the most similar images, most similar first."
    names = ", ".join(query.name for query in queries)
    write_page(path, f"Search in {images.name}", names, [Section("What was found", lead, wide=[Block(figure=figure)])])
