"""The embeddings of a set of images, kept beside the networks that made them, so that a search answers at once.

Each set that was searched has a file of its own, `index-DIGEST.safetensors`; the last few are kept.
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

import torch
from torch import Tensor

from entourage.data.image_set import ImageSet
from entourage.embed.training.ensemble import EmbeddedImages
from entourage.embed.training.run_folder import RunConfig
from entourage.io.weights import read_weights, write_weights

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
