"""Features of many images: decoded by threads a few batches ahead, embedded in batches, broken ones set aside.

Feature vectors on disk, found again by the content of what they describe.

Features that are computed once: known by an image's content, wherever the image has moved.
"""

import hashlib
import os
import secrets
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.backbone import Backbone
from entourage.compute import count_threads, map_ahead, resolve_device
from entourage.data.media import UnreadableImageError, read_image
from entourage.io.files import atomic_path
from entourage.io.progress import progress_bar
from entourage.io.safe_formats import READ_ERRORS

_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Extraction:
    """Features of the images that could be read.

    Attributes:
        features: shape (n_ok, dim).
        indices: for each row of `features` its image's index among the given paths, ascending.
        failures: path and reason, one line, of every image that could not be read.
    """

    features: NDArray[np.float32]
    indices: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True)
class FeatureBatch:
    """One batch on its way: features (b, dim) of the images at `indices`, and index and reason of those that failed."""

    indices: list[int]
    features: NDArray[np.float32]
    failures: list[tuple[int, str]]


def extract_features(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> Extraction:
    """Features of all images that can be read, in their order.

    Args:
        paths: image files, n of them.
        backbone: moved to `device` if it is not there.
        batch_size: images that go through the network together.
        workers: threads that decode images; by default one for each core, at most 16.
        device: where the network runs.
        progress: show a bar on stderr; None: only if it is a terminal.

    Returns:
        The features. Memory: the result, and the pixels of about three batches.
    """
    parts = [np.empty((0, backbone.dim), dtype=np.float32)]
    indices: list[int] = []
    failures: list[tuple[Path, str]] = []
    with progress_bar("Reading images", len(paths), progress) as advance:
        for batch in extract_batches(paths, backbone, batch_size=batch_size, workers=workers, device=device):
            parts.append(batch.features)
            indices += batch.indices
            failures += [(paths[index], reason) for index, reason in batch.failures]
            advance(len(batch.indices) + len(batch.failures))
    return Extraction(np.concatenate(parts), indices, failures)


def extract_batches(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
) -> Iterator[FeatureBatch]:
    """As `extract_features`, but batch by batch, for those who save as they go."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected 1 or more")
    resolved = resolve_device(device)
    backbone.module.to(resolved)
    # Threads, not processes: Pillow releases the interpreter's lock while it decodes and resizes, and threads neither
    # copy pixels between processes nor hang after a fork.
    decode = partial(_pixels_or_reason, backbone)
    decoded = enumerate(map_ahead(decode, paths, count_threads(workers), _BATCHES_AHEAD * batch_size))
    while chunk := list(islice(decoded, batch_size)):
        images = [(index, pixels) for index, pixels in chunk if isinstance(pixels, Tensor)]
        failures = [(index, reason) for index, reason in chunk if isinstance(reason, str)]
        features = np.empty((0, backbone.dim), dtype=np.float32)
        if images:
            pixels = torch.stack([tensor for _, tensor in images])  # (b, 3, height, width)
            features = backbone.embed(pixels.to(resolved)).cpu().numpy()  # (b, dim)
        yield FeatureBatch([index for index, _ in images], features, failures)


def _pixels_or_reason(backbone: Backbone, path: Path) -> Tensor | str:
    try:
        return backbone.preprocess(read_image(path, shorter_side=backbone.preprocessing.decode_side))
    except UnreadableImageError as error:
        return error.reason


KEY_BYTES = 16


class FeatureStore:
    """A folder of shards, each an `.npz` of keys (k, 16) and features (k, dim).

    Shards are only ever added, each complete under a name of its own, so any number of processes may read and write
    at once. An `.npz` carries checksums: a damaged shard is noticed and passed over. Two shards may hold the same key,
    with the same features.

    Args:
        folder: made when the first shard is written.
        dim: length of a feature vector; shards of another length are passed over.
        shard_rows: a shard is written as soon as this many rows have come together.
    """

    def __init__(self, folder: Path, dim: int, shard_rows: int = 1024) -> None:
        self.folder = folder
        self.dim = dim
        self.shard_rows = shard_rows

    def lookup(self, keys: set[bytes]) -> Iterator[tuple[list[bytes], NDArray[np.float32]]]:
        """The stored features of keys, shard by shard.

        Args:
            keys: the keys; the set is not changed.

        Yields:
            Keys and their features, shape (k, dim), each key once. Costs a read of all keys, and of the features of
            those shards that hold one of them.
        """
        missing = set(keys)
        for path in sorted(self.folder.glob("*.npz")):
            if not missing:
                return
            rows = self._read_shard(path, missing)
            if rows is not None:
                missing.difference_update(rows[0])
                yield rows

    @contextmanager
    def writer(self) -> Iterator["ShardWriter"]:
        """Take new rows while the block runs; those not yet written are written at its end, even after an interrupt."""
        writer = ShardWriter(self)
        try:
            yield writer
        finally:
            writer.flush()

    def _read_shard(self, path: Path, requested: set[bytes]) -> tuple[list[bytes], NDArray[np.float32]] | None:
        try:
            with np.load(path, allow_pickle=False) as shard:
                keys = np.asarray(shard["keys"])
                if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
                    return None
                rows = {key.tobytes(): row for row, key in enumerate(keys) if key.tobytes() in requested}
                if not rows:
                    return None
                features = np.asarray(shard["features"])
        except READ_ERRORS:
            return None
        if features.shape != (len(keys), self.dim) or features.dtype != np.float32:
            return None
        return list(rows), features[list(rows.values())]


class ShardWriter:
    """Collects rows and writes them as shards. A disk that is full or read-only costs the cache, not the run."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._keys: list[bytes] = []
        self._features: list[NDArray[np.float32]] = []

    def add(self, keys: Sequence[bytes], features: NDArray[np.float32]) -> None:
        """Take the features (k, dim) of k keys."""
        self._keys += keys
        self._features.append(features)
        if len(self._keys) >= self.store.shard_rows:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected, if anything."""
        keys, features = self._keys, self._features
        self._keys, self._features = [], []
        if not keys:
            return
        path = self.store.folder / f"{secrets.token_hex(16)}.npz"
        try:
            with atomic_path(path) as temporary:
                table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), KEY_BYTES)
                np.savez(temporary, keys=table, features=np.concatenate(features))
        except (OSError, ValueError) as error:
            warnings.warn(f"features are not cached: cannot write to {self.store.folder}: {error}", stacklevel=2)


def cached_features(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
    cache_dir: str | Path | None = None,
) -> Extraction:
    """As `extract_features`, but each image goes through the network only once in its life.

    The key is a digest of the file's bytes together with the backbone's fingerprint: a renamed or copied image is
    known, a changed one is not. What has been computed is kept even if the run is interrupted. Failures are not kept.

    Args:
        paths: image files, n of them.
        backbone: moved to `device` if there is something to compute.
        batch_size: images that go through the network together.
        workers: threads that read and decode; by default one for each core, at most 16.
        device: where the network runs.
        progress: show a bar on stderr; None: only if it is a terminal.
        cache_dir: where features are kept; None: see `default_cache_dir`.

    Returns:
        The features, in the order of the paths. Costs one read of every file, and the network for the new ones.
    """
    positions, reasons = _digest_all(paths, count_threads(workers))
    features = np.empty((len(paths), backbone.dim), dtype=np.float32)  # (n, dim)
    store = FeatureStore(Path(cache_dir or default_cache_dir()) / backbone.fingerprint, backbone.dim)
    new = dict(positions)
    for keys, rows in store.lookup(set(positions)):
        for key, row in zip(keys, rows, strict=True):
            features[new.pop(key)] = row
    keys, firsts = list(new), [paths[equal[0]] for equal in new.values()]
    with store.writer() as writer, progress_bar("Reading images", len(keys), progress) as advance:
        for batch in extract_batches(firsts, backbone, batch_size=batch_size, workers=workers, device=device):
            writer.add([keys[index] for index in batch.indices], batch.features)
            for index, row in zip(batch.indices, batch.features, strict=True):
                features[new[keys[index]]] = row
            for index, reason in batch.failures:
                reasons.update(dict.fromkeys(new[keys[index]], reason))
            advance(len(batch.indices) + len(batch.failures))
    indices = [index for index in range(len(paths)) if index not in reasons]
    failures = [(paths[index], reasons[index]) for index in sorted(reasons)]
    return Extraction(features[indices] if failures else features, indices, failures)


def default_cache_dir() -> Path:
    """`$ENTOURAGE_CACHE`; or `entourage` in `$XDG_CACHE_HOME`, which is `~/.cache` unless it is set."""
    chosen, shared = os.environ.get("ENTOURAGE_CACHE"), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(chosen or f"{shared}/entourage").expanduser()


def _digest_all(paths: Sequence[Path], workers: int) -> tuple[dict[bytes, list[int]], dict[int, str]]:
    """Where each content occurs among the paths (equal images share a digest), and why the others cannot be read."""
    positions: dict[bytes, list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    executor = ThreadPoolExecutor(workers, thread_name_prefix="digest")
    try:
        for index, digest in enumerate(executor.map(_digest, paths)):
            if isinstance(digest, bytes):
                positions[digest].append(index)
            else:
                reasons[index] = digest
    finally:  # on an interrupt the files that are still queued are not waited for
        executor.shutdown(wait=True, cancel_futures=True)
    return positions, reasons


def _digest(path: Path) -> bytes | str:
    """Digest of a file's bytes, or the reason why there is none."""
    if not path.is_file():  # a pipe would block for ever
        return "no such file"
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=KEY_BYTES)).digest()
    except OSError as error:
        return str(error.strerror)
