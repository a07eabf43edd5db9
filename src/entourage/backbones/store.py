"""Feature vectors on disk, found again by the content of what they describe."""

import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entourage.io.npz import UNREADABLE
from entourage.io.writing import atomic_path

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

    def lookup(self, wanted: set[bytes]) -> Iterator[tuple[list[bytes], NDArray[np.float32]]]:
        """The stored features of the wanted keys, shard by shard.

        Args:
            wanted: keys; they are not changed.

        Yields:
            Keys and their features, shape (k, dim), each key once. Costs a read of all keys, and of the features of
            those shards that hold a wanted one.
        """
        left = set(wanted)
        for path in sorted(self.folder.glob("*.npz")):
            if not left:
                return
            found = self._read_shard(path, left)
            if found is not None:
                left.difference_update(found[0])
                yield found

    @contextmanager
    def writer(self) -> Iterator["ShardWriter"]:
        """Take new rows while the block runs; those not yet written are written at its end, even after an interrupt."""
        writer = ShardWriter(self)
        try:
            yield writer
        finally:
            writer.flush()

    def _read_shard(self, path: Path, wanted: set[bytes]) -> tuple[list[bytes], NDArray[np.float32]] | None:
        try:
            with np.load(path, allow_pickle=False) as shard:
                keys = np.asarray(shard["keys"])
                if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
                    return None
                rows = {key.tobytes(): row for row, key in enumerate(keys) if key.tobytes() in wanted}
                if not rows:
                    return None
                features = np.asarray(shard["features"])
        except UNREADABLE:
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
