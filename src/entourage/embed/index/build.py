"""Building of an index, and its update: only new and changed images are embedded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.features import BATCHES_AHEAD, KEY_BYTES, FeatureStore, embed_batches
from entourage.compute import count_threads, map_ahead
from entourage.embed.index.approximate import build_cells
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.source import BLOCK_ROWS, ImageCollection, VectorTable, read_collection
from entourage.embed.index.storage import (
    CURRENT_FILE,
    FORMAT,
    INDEX_FILE,
    Items,
    States,
    Version,
    publish,
    read_items,
    read_states,
    read_vectors_file,
    read_version,
    remove_files,
    write_columns,
)
from entourage.embed.training.fit import EmbeddedImages
from entourage.game.similarity import normalize_rows
from entourage.io.files import atomic_path, check_outputs, read_json_object
from entourage.io.progress import progress_bar
from entourage.io.safe_formats import read_npz
from entourage.runs.directory import RunDirectory

PENDING = "pending"  # folder of vectors that are computed, but not yet part of a version
PENDING_ROWS = 256  # vectors of a file there: a killed process loses fewer than these
MESSAGES = {"model": "the embeddings of another network, or of other weights"}


@dataclass(frozen=True)
class Update:
    """Result of building or updating an index.

    Attributes:
        n: number of vectors of the index.
        embedded: number of images that were embedded, or of vectors that were read.
        reused: number of vectors of the former version.
        removed: number of items of the former version that the source no longer has.
        skipped: name and reason of each image that could not be read.
    """

    n: int
    embedded: int
    reused: int
    removed: int
    skipped: list[tuple[str, str]]


def build_index(
    source: str | Path,
    out: str | Path,
    model: str | Path | nn.Module | Embedder = "efficientnet-lite1-gem",
    *,
    batch_size: int = 64,
    workers: int | None = None,
    approximate: bool | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> Update:
    """Build the index of images or vectors, or update it.

    Args:
        source: see `read_collection`.
        out: folder of the index.
        model: see `Embedder.load`; vectors need none.
        batch_size: number of images per forward pass.
        workers: threads that read and decode images; None for one per core, at most 16.
        approximate: see `build_cells`.
        device: device of the network.
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        The numbers of embedded, reused and removed images.

    Raises:
        ValueError: the source or the model is not valid, or see `update_images`.
    """
    folder, collection = Path(out), read_collection(source)
    check_outputs(folder)
    origin = str(Path(source).resolve()) if Path(source).exists() else str(source)
    if isinstance(collection, VectorTable):
        return update_vectors(folder, collection, source=origin, approximate=approximate, progress=progress)
    embedder = model if isinstance(model, Embedder) else Embedder.load(model, device=device)
    return update_images(
        folder,
        collection,
        lambda: embedder,
        model=embedder.model,
        fingerprint=embedder.fingerprint,
        source=origin,
        batch_size=batch_size,
        workers=workers,
        approximate=approximate,
        progress=progress,
    )


def update_images(
    folder: Path,
    images: ImageCollection,
    load: Callable[[], Embedder],
    *,
    model: str | None,
    fingerprint: str,
    source: str,
    embedded: EmbeddedImages | None = None,
    on_mismatch: Literal["error", "restart"] = "error",
    batch_size: int = 64,
    workers: int | None = None,
    approximate: bool | None = None,
    progress: bool | None = None,
) -> Update:
    """Build the index of a collection of images, or update it.

    An image whose file has the size and modification time of the last update is not read. Others are recognised by
    their content, so that renamed and copied images are not embedded again. Vectors are stored while others are
    computed: an interrupted call resumes when it is repeated. The former version can be searched until the new one is
    complete.

    Args:
        folder: folder of the index.
        images: the images.
        load: returns the network; called only if there are images to embed.
        model: name of the network, stored for searches; None for a module.
        fingerprint: that of the network.
        source: the source of the images, as an absolute path or the name of a data set.
        embedded: embeddings that are known already, with the indices of their images.
        on_mismatch: whether an index of another network or source raises an error or is replaced.
        batch_size: number of images per forward pass.
        workers: threads that read and decode images; None for one per core, at most 16.
        approximate: see `build_cells`.
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        The numbers of embedded, reused and removed images.

    Raises:
        ValueError: the folder holds another index, another process writes to it, or no image can be read.
    """
    config = {"format": FORMAT, "model": fingerprint, "source": source}
    if read_json_object(folder / INDEX_FILE) == config and (update := _ImageUpdate(folder, images)).is_current():
        return update.result(
            len(update.former_names.items)
        )  # needs no lock, so that searches do not exclude each other
    with RunDirectory(folder, config, file=INDEX_FILE, messages=MESSAGES, root=folder, on_mismatch=on_mismatch) as run:
        _start(folder, run)
        update = _ImageUpdate(folder, images)
        if embedded is not None:
            update.add_known(embedded)
        if update.missing:
            update.embed(load(), batch_size, workers, progress)
        result = update.finish(model, source, approximate)
        shutil.rmtree(folder / PENDING, ignore_errors=True)
    return result


class _ImageUpdate:
    """The images of a collection, with the origin of the vector of each.

    Attributes:
        rows: row of each image in the former version, shape (n,); -1 if it is not there.
        digests: digest of the content of each image, "" if it is not known yet.
        reasons: why an image cannot be read, by its index.
    """

    def __init__(self, folder: Path, images: ImageCollection) -> None:
        self.folder, self.images = folder, images
        self.states = [images.source.state(index) for index in range(len(images.items))]
        self.rows = np.full(len(images.items), -1)
        self.digests = [""] * len(images.items)
        self.reasons: dict[int, str] = {}
        self.n_embedded = 0
        self.former = read_version(folder)
        self.former_names, former_states = Items([]), States([], [])
        if self.former is not None and (states := read_states(folder, self.former)) is not None:
            self.former_names, former_states = read_items(folder, self.former), states
        self.row_of_digest = {digest: row for row, digest in enumerate(former_states.digests)}
        self._find_unchanged(former_states)

    def _find_unchanged(self, former: States) -> None:
        """Set row and digest, or the reason, of the images that have not changed since the former version."""
        row_of_item = {item: row for row, item in enumerate(self.former_names.items)}
        skipped = {} if self.former is None else dict(self.former.skipped)
        states = {} if self.former is None else dict(zip(skipped, self.former.skipped_states, strict=True))
        for index, (item, state) in enumerate(zip(self.images.items, self.states, strict=True)):
            row = row_of_item.get(item, -1)
            digest = self._digest(index) if not state and (row >= 0 or item in skipped) else ""
            if row >= 0 and (former.states[row] == state if state else former.digests[row] == digest):
                self.rows[index], self.digests[index] = row, former.digests[row]
            elif item in skipped and states[item] == (state or digest):
                self.reasons[index] = skipped[item]

    def is_current(self) -> bool:
        """Return whether the former version is that of these images."""
        if self.former is None or self.missing:
            return False
        readable, skipped = self._readable(), self._skipped()
        same_rows = len(readable) == self.former.n and bool((self.rows[readable] == np.arange(len(readable))).all())
        return same_rows and self._names(readable) == self.former_names and skipped == self.former.skipped

    def result(self, n: int) -> Update:
        """Return the numbers of embedded, reused and removed images for an index of n vectors."""
        reused = sum(self._former_row(index) >= 0 for index in self._readable())
        gone = len(set(self.former_names.items) - set(self.images.items))
        return Update(n, self.n_embedded, reused, gone, self._skipped())

    def _readable(self) -> list[int]:
        return [index for index in range(len(self.digests)) if index not in self.reasons]

    def _skipped(self) -> list[tuple[str, str]]:
        return [(self.images.items[index], self.reasons[index]) for index in sorted(self.reasons)]

    def _names(self, indices: list[int]) -> Items:
        labels = self.images.labels
        items = [self.images.items[index] for index in indices]
        return Items(items, None if labels is None else [labels[index] for index in indices])

    @property
    def missing(self) -> list[int]:
        """Indices of the images whose content is not known yet."""
        return [index for index, digest in enumerate(self.digests) if not digest and index not in self.reasons]

    def add_known(self, embedded: EmbeddedImages) -> None:
        """Store embeddings that are known already."""
        vectors = embedded.embeddings.cpu().numpy()  # (k, d)
        row_of_index = {index: row for row, index in enumerate(embedded.indices.tolist())}
        unreadable = dict(embedded.skipped)
        indices = [index for index in self.missing if index in row_of_index]
        self.reasons |= {i: unreadable[item] for i, item in enumerate(self.images.items) if item in unreadable}
        with FeatureStore(self.folder / PENDING, vectors.shape[1], PENDING_ROWS).writer() as writer:
            for index in indices:
                digest = self._digest(index)
                if digest:
                    self.digests[index] = digest
                    row = row_of_index[index]
                    writer.add([bytes.fromhex(digest)], vectors[row : row + 1])

    def embed(self, embedder: Embedder, batch_size: int, workers: int | None, progress: bool | None) -> None:
        """Embed the images whose content is neither in the former version nor among the pending vectors."""
        store = FeatureStore(self.folder / PENDING, embedder.dim, PENDING_ROWS)
        stored = {key.hex() for key in store.stored_keys()}
        missing = self.missing
        first: dict[str, int] = {}  # the image that is embedded for each digest

        def load(index: int) -> Tensor | str | None:
            digest = self.digests[index] = self._digest(index)
            if not digest:
                return self.reasons[index]
            if digest in self.row_of_digest or digest in stored or first.setdefault(digest, index) != index:
                return None
            return embedder.load_pixels(self.images.source, index)

        with progress_bar("Embedding images", len(missing), progress) as advance, store.writer() as writer:

            def decoded() -> Iterator[tuple[int, Tensor | str]]:
                results = map_ahead(load, missing, count_threads(workers), BATCHES_AHEAD * batch_size)
                for index, result in zip(missing, results, strict=True):
                    if result is None:
                        advance(1)
                    else:
                        yield index, result

            for batch in embed_batches(decoded(), embedder.embed_pixels, embedder.dim, batch_size):
                writer.add([bytes.fromhex(self.digests[index]) for index in batch.indices], batch.features)
                self.reasons |= dict(batch.failures)
                self.n_embedded += len(batch.indices)
                advance(len(batch.indices) + len(batch.failures))
        unreadable = {self.digests[index]: reason for index, reason in self.reasons.items() if self.digests[index]}
        self.reasons |= {i: unreadable[digest] for i, digest in enumerate(self.digests) if digest in unreadable}

    def finish(self, model: str | None, source: str, approximate: bool | None) -> Update:
        """Write a new version of the index and make it the current one; a ValueError if no image can be read."""
        readable, skipped = self._readable(), self._skipped()
        if not readable:
            reason = f"none of {len(skipped)} images can be read ({skipped[0][1]})"
            raise ValueError(f"{self.images.name}: {reason}; expected at least one")
        rows = np.array([self._former_row(index) for index in readable])
        dim = self.former.dim if self.former is not None else self._pending_dim()
        number = 1 if self.former is None else self.former.number + 1
        skipped_states = [self.states[index] or self.digests[index] for index in sorted(self.reasons)]
        version = Version(number, len(readable), dim, model, source, skipped, skipped_states)
        keys = [bytes.fromhex(self.digests[index]) for index in readable]
        with _new_vectors(self.folder, version) as values:
            self._copy_former(values, rows)
            self._copy_pending(values, keys, np.flatnonzero(rows < 0))
        write_columns(version.items_file(self.folder), self._names(readable))
        states = States([self.states[i] for i in readable], [self.digests[i] for i in readable])
        write_columns(version.states_file(self.folder), states)
        _publish(self.folder, version, approximate)
        return self.result(len(readable))

    def _former_row(self, index: int) -> int:
        row = int(self.rows[index])
        return row if row >= 0 else self.row_of_digest.get(self.digests[index], -1)

    def _pending_dim(self) -> int:
        """Return the length of the pending vectors."""
        for path in (self.folder / PENDING).glob("*.npz"):
            return int(read_npz(path, ["features"])["features"].shape[1])
        raise ValueError(f"{self.folder}: the vectors could not be stored; expected a writable folder with free space")

    def _copy_former(self, values: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        if self.former is None:
            return
        former = read_vectors_file(self.former.vectors_file(self.folder), (self.former.n, self.former.dim))
        targets = np.flatnonzero(rows >= 0)
        for start in range(0, len(targets), BLOCK_ROWS):
            chosen = targets[start : start + BLOCK_ROWS]
            values[chosen] = former[rows[chosen]]

    def _copy_pending(self, values: NDArray[np.float32], keys: list[bytes], targets: NDArray[np.int64]) -> None:
        rows_of: dict[bytes, list[int]] = {}
        for row in targets.tolist():
            rows_of.setdefault(keys[row], []).append(row)
        for found, vectors in FeatureStore(self.folder / PENDING, values.shape[1]).lookup(set(rows_of)):
            for key, vector in zip(found, vectors, strict=True):
                values[rows_of.pop(key)] = vector
        if rows_of:
            problem = f"the vectors of {len(rows_of)} images could not be stored"
            raise ValueError(f"{self.folder}: {problem}; expected a writable folder with free space")

    def _digest(self, index: int) -> str:
        """Return the digest of the content of an image; "" if it cannot be read, and the reason is then stored."""
        try:
            return blake2b(self.images.source.content(index), digest_size=KEY_BYTES).hexdigest()
        except OSError as error:
            self.reasons[index] = str(error.strerror)
            return ""


@contextmanager
def _new_vectors(folder: Path, version: Version) -> Iterator[NDArray[np.float32]]:
    """Open the vectors of a new version for writing; the file has its name when the block ends."""
    with atomic_path(version.vectors_file(folder)) as temporary:
        shape = (version.n, version.dim)
        values = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        yield values
        values.flush()


def update_vectors(
    folder: Path, table: VectorTable, *, source: str, approximate: bool | None = None, progress: bool | None = None
) -> Update:
    """Build the index of a file of vectors, which are scaled to length 1; an existing one is replaced.

    Args:
        folder: folder of the index.
        table: the vectors.
        source: the absolute path of the file.
        approximate: see `build_cells`.
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        The numbers of vectors that were read and of items that were removed.

    Raises:
        ValueError: the folder holds an index of another source, another process writes to it, or a value is not finite.
    """
    n, dim = len(table.items), table.values.shape[1]
    config = {"format": FORMAT, "model": "vectors", "source": source}
    with RunDirectory(folder, config, file=INDEX_FILE, messages=MESSAGES, root=folder) as run:
        _start(folder, run)
        former = read_version(folder)
        gone = len(set(read_items(folder, former).items) - set(table.items)) if former is not None else 0
        version = Version(1 if former is None else former.number + 1, n, dim, "", source)
        with progress_bar("Reading vectors", n, progress) as advance, _new_vectors(folder, version) as values:
            start = 0
            for block in table.blocks():
                values[start : start + len(block)] = normalize_rows(torch.from_numpy(block)).numpy()
                start += len(block)
                advance(len(block))
        write_columns(version.items_file(folder), Items(table.items))
        _publish(folder, version, approximate)
    return Update(n, n, 0, gone, [])


def _start(folder: Path, run: RunDirectory) -> None:
    """Write the configuration; the vectors of another one are removed first."""
    if run.restarted:
        (folder / CURRENT_FILE).unlink(missing_ok=True)
        remove_files(folder)
        shutil.rmtree(folder / PENDING, ignore_errors=True)
    run.commit()


def _publish(folder: Path, version: Version, approximate: bool | None) -> None:
    values = read_vectors_file(version.vectors_file(folder), (version.n, version.dim))
    probes = build_cells(values, version.cells_file(folder), approximate)
    publish(folder, replace(version, probes=probes))
