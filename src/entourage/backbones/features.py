"""Extraction of image features in batches, with decoding in threads, and a cache on disk keyed by file content."""

import hashlib
import os
import secrets
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from entourage.io.safe_formats import READ_ERRORS, read_npz

BATCHES_AHEAD = 2  # batches that are decoded while another is embedded


@dataclass(frozen=True)
class Extraction:
    """Features of the images that could be read.

    Attributes:
        features: shape (n_ok, dim).
        indices: index of each row's image among the paths, ascending.
        failures: path of every image that could not be read, and the reason in one line.
    """

    features: NDArray[np.float32]
    indices: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True)
class FeatureBatch:
    """Features (b, dim) of the images at `indices`; index and reason of each image that could not be read."""

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
    """Compute the features of all images that can be read, in order.

    Args:
        paths: image files, length n.
        backbone: the network, which is moved to `device`.
        batch_size: number of images per forward pass.
        workers: threads that decode images; None for one per core, at most 16.
        device: device of the network.
        progress: whether to show a progress bar on stderr; None: only on a terminal.

    Returns:
        The features. Needs memory for the result and the pixels of about three batches.

    Raises:
        ValueError: an option is out of range, or the device is not available.
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
    """Yield the features batch by batch, so that callers can store them at once; see `extract_features`."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected 1 or more")
    resolved = resolve_device(device)
    backbone.module.to(resolved)
    # Threads instead of processes: Pillow releases the global interpreter lock while it decodes and resizes; pixels are
    # not copied between processes, and a fork could deadlock.
    decode = partial(_pixels_or_reason, backbone)
    decoded = enumerate(map_ahead(decode, paths, count_threads(workers), BATCHES_AHEAD * batch_size))
    yield from embed_batches(decoded, lambda pixels: backbone.embed(pixels.to(resolved)), backbone.dim, batch_size)


def embed_batches(
    decoded: Iterator[tuple[int, Tensor | str]], embed: Callable[[Tensor], Tensor], dim: int, batch_size: int
) -> Iterator[FeatureBatch]:
    """Yield the features of decoded images batch by batch.

    Args:
        decoded: index of each image, with its pixels, uint8, shape (3, height, width), or the reason why it cannot be
            read.
        embed: network from pixels, shape (b, 3, height, width), to features, shape (b, dim).
        dim: length of a feature vector.
        batch_size: number of images per batch, those that cannot be read included.

    Yields:
        Features, on the CPU, with the images that could not be read.
    """
    while chunk := list(islice(decoded, batch_size)):
        images = [(index, pixels) for index, pixels in chunk if isinstance(pixels, Tensor)]
        failures = [(index, reason) for index, reason in chunk if isinstance(reason, str)]
        features = np.empty((0, dim), dtype=np.float32)
        if images:
            pixels = torch.stack([tensor for _, tensor in images])  # (b, 3, height, width)
            features = embed(pixels).cpu().numpy()  # (b, dim)
        yield FeatureBatch([index for index, _ in images], features, failures)


def _pixels_or_reason(backbone: Backbone, path: Path) -> Tensor | str:
    try:
        return backbone.preprocess(read_image(path, shorter_side=backbone.preprocessing.decode_side))
    except UnreadableImageError as error:
        return error.reason


KEY_BYTES = 16


class FeatureStore:
    """A folder of shards, each an `.npz` of keys (k, 16) and features (k, dim).

    Shards have unique names, are written atomically and never changed, so that any number of processes can read and
    write concurrently. Damaged shards are detected by the checksums of `.npz` and ignored. Several shards may contain
    the same key, with the same features.

    Args:
        folder: the folder, which is created with the first shard.
        dim: length of a feature vector; shards of another length are ignored.
        shard_rows: number of rows at which a shard is written.
    """

    def __init__(self, folder: Path, dim: int, shard_rows: int = 1024) -> None:
        self.folder = folder
        self.dim = dim
        self.shard_rows = shard_rows

    def lookup(self, keys: set[bytes]) -> Iterator[tuple[list[bytes], NDArray[np.float32]]]:
        """Yield the stored features of the requested keys, shard by shard.

        Args:
            keys: the keys; the set is not changed.

        Yields:
            Keys and their features, shape (k, dim), each key once. Reads all keys, and the features of the shards that
            contain one of the requested keys.
        """
        missing = set(keys)
        for path in sorted(self.folder.glob("*.npz")):
            if not missing:
                return
            rows = self._read_shard(path, missing)
            if rows is not None:
                missing.difference_update(rows[0])
                yield rows

    def stored_keys(self) -> set[bytes]:
        """Return all stored keys; damaged shards are ignored."""
        keys: set[bytes] = set()
        for path in self.folder.glob("*.npz"):
            with suppress(*READ_ERRORS):
                shard = read_npz(path, ("keys", "features"))
                if shard["features"].shape[1:] == (self.dim,):
                    keys.update(key.tobytes() for key in shard["keys"])
        return keys

    @contextmanager
    def writer(self) -> Iterator["ShardWriter"]:
        """Open a writer, whose remaining rows are written when the block ends, also after an exception."""
        writer = ShardWriter(self)
        try:
            yield writer
        finally:
            writer.flush()

    def _read_shard(self, path: Path, requested: set[bytes]) -> tuple[list[bytes], NDArray[np.float32]] | None:
        try:
            keys = read_npz(path, ("keys",))["keys"]
            if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
                return None
            rows = {key.tobytes(): row for row, key in enumerate(keys) if key.tobytes() in requested}
            if not rows:
                return None
            features = read_npz(path, ("features",))["features"]
        except READ_ERRORS:
            return None
        if features.shape != (len(keys), self.dim) or features.dtype != np.float32:
            return None
        return list(rows), features[list(rows.values())]


class ShardWriter:
    """Writer that collects rows and writes them as shards; an OSError causes a warning only."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._keys: list[bytes] = []
        self._features: list[NDArray[np.float32]] = []

    def add(self, keys: Sequence[bytes], features: NDArray[np.float32]) -> None:
        """Add the features, shape (k, dim), of k keys to the rows that the next shard will contain."""
        self._keys += keys
        self._features.append(features)
        if len(self._keys) >= self.store.shard_rows:
            self.flush()

    def flush(self) -> None:
        """Write the rows that have been collected, if any, as a shard."""
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
    """Load features from the cache, and compute and store the missing ones; see `extract_features`.

    Keys are the digest of a file's bytes and the fingerprint of the backbone: renamed and copied images are found in
    the cache, changed ones are not. An interrupted call stores the features computed so far. Failures are not cached.

    Args:
        paths: image files, length n.
        backbone: the network, which is moved to `device` if features are missing.
        batch_size: number of images per forward pass.
        workers: threads that read and decode; None for one per core, at most 16.
        device: device of the network.
        progress: whether to show a progress bar on stderr; None: only on a terminal.
        cache_dir: folder of the cache; None for `default_cache_dir()`.

    Returns:
        The features, in the order of the paths. Costs one read of every file, and a forward pass for new images.
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
    """Return `$ENTOURAGE_CACHE`, otherwise `entourage` in `$XDG_CACHE_HOME`, which defaults to `~/.cache`."""
    folder, shared = os.environ.get("ENTOURAGE_CACHE"), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or f"{shared}/entourage").expanduser()


def _digest_all(paths: Sequence[Path], workers: int) -> tuple[dict[bytes, list[int]], dict[int, str]]:
    """Digest all files; return the indices of the paths by digest, and the reasons of unreadable files by index."""
    positions: dict[bytes, list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    executor = ThreadPoolExecutor(workers, thread_name_prefix="digest")
    try:
        for index, digest in enumerate(executor.map(_digest, paths)):
            if isinstance(digest, bytes):
                positions[digest].append(index)
            else:
                reasons[index] = digest
    finally:  # an interrupt cancels the queued files
        executor.shutdown(wait=True, cancel_futures=True)
    return positions, reasons


def _digest(path: Path) -> bytes | str:
    """Return the digest of a file's bytes, or the reason why it cannot be read."""
    if not path.is_file():  # reading a named pipe would block
        return "no such file"
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=KEY_BYTES)).digest()
    except OSError as error:
        return str(error.strerror)
