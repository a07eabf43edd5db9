from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from entourage.backbones.features import FeatureStore


def keys_of(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def rows_of(*numbers: int) -> NDArray[np.float32]:
    return np.array([[number, -number] for number in numbers], dtype=np.float32)


def stored(store: FeatureStore, *numbers: int) -> dict[bytes, list[float]]:
    found = store.lookup(set(keys_of(*numbers)))
    return {key: row.tolist() for keys, rows in found for key, row in zip(keys, rows, strict=True)}


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / "store", dim=2, shard_rows=3)


def test_added_rows_are_found(store: FeatureStore) -> None:
    assert stored(store, 1) == {}
    with store.writer() as writer:
        for number in range(5):
            writer.add(keys_of(number), rows_of(number))
    assert len(list(store.folder.iterdir())) == 2  # a full shard and the rest
    assert stored(store, 1, 4, 9) == {keys_of(1)[0]: [1.0, -1.0], keys_of(4)[0]: [4.0, -4.0]}


def test_key_in_two_shards_is_found_once(store: FeatureStore) -> None:
    for _ in range(2):
        with store.writer() as writer:
            writer.add(keys_of(1, 2), rows_of(1, 2))
    assert sum(len(keys) for keys, _ in store.lookup(set(keys_of(1, 2)))) == 2


def test_full_shards_are_written_immediately(store: FeatureStore) -> None:
    with store.writer() as writer:
        writer.add(keys_of(1, 2, 3), rows_of(1, 2, 3))
        assert len(stored(store, 1, 2, 3)) == 3


def test_damaged_shards_are_ignored(store: FeatureStore) -> None:
    with store.writer() as writer:
        writer.add(keys_of(1), rows_of(1))
    (shard,) = store.folder.iterdir()
    valid = shard.read_bytes()
    flipped = bytearray(valid)
    flipped[valid.index(rows_of(1).tobytes())] ^= 1  # one bit of one feature
    for content in (b"", b"noise", valid[:-30], bytes(flipped)):
        shard.write_bytes(content)
        assert stored(store, 1) == {}
    shard.write_bytes(valid)
    assert len(stored(store, 1)) == 1


def test_shards_of_another_format_are_ignored(store: FeatureStore) -> None:
    store.folder.mkdir()
    table = np.frombuffer(keys_of(1)[0], dtype=np.uint8)[None]
    wrong: list[dict[str, NDArray[np.generic]]] = [
        {"keys": table},
        {"keys": table, "features": np.zeros((1, 7), dtype=np.float32)},
        {"keys": table, "features": np.zeros((1, 2))},
        {"keys": table[:, :8], "features": rows_of(1)},
    ]
    for number, arrays in enumerate(wrong):
        np.savez(store.folder / f"{number}.npz", **arrays)
    assert stored(store, 1) == {}


def test_unwritable_store_warns(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = FeatureStore(tmp_path / "file" / "store", dim=2)
    with pytest.warns(UserWarning, match="features are not cached"), store.writer() as writer:
        writer.add(keys_of(1), rows_of(1))
