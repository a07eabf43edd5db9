import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.data.datasets.published import read_cifar10_binary, read_cifar10_python
from entourage.data.image_set import ImageSet

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3072), dtype=np.uint8)  # two images in each batch
LABELS = np.array([6, 9, 9, 4, 1, 1, 2, 7, 8, 3, 0, 5])


def write_binary(folder: Path) -> None:
    records = np.concatenate([LABELS[:, None].astype(np.uint8), PIXELS], axis=1)  # (12, 3073)
    for index, name in enumerate(NAMES):
        (folder / f"{name}.bin").write_bytes(records[2 * index : 2 * index + 2].tobytes())


def write_python(folder: Path, **changes: Any) -> None:
    for index, name in enumerate(NAMES):
        rows = slice(2 * index, 2 * index + 2)
        batch = {b"data": PIXELS[rows], b"labels": LABELS[rows].tolist(), b"batch_label": b"batch"}
        changed = {key.encode(): value for key, value in changes.items()}
        (folder / name).write_bytes(pickle.dumps(batch | changed, 3))


@pytest.mark.parametrize(
    ("write", "read"), [(write_binary, read_cifar10_binary), (write_python, read_cifar10_python)], ids=["bin", "py"]
)
def test_both_versions_give_the_same_images(
    tmp_path: Path, write: Callable[[Path], None], read: Callable[[Path], ImageSet]
) -> None:
    write(tmp_path)
    images = read(tmp_path)
    assert images.labels.tolist() == LABELS.tolist()
    assert images.split.tolist() == [0] * 10 + [1] * 2
    assert images.items[0] == "train/00000"
    assert images.items[9:] == ["train/00009", "test/00000", "test/00001"]
    assert images.class_names[3] == "cat"
    pixels = np.asarray(images.image(11))  # (32, 32, 3); the file stores the red channel first, row by row
    np.testing.assert_array_equal(pixels[..., 0].ravel(), PIXELS[11, :1024])
    np.testing.assert_array_equal(pixels[..., 2].ravel(), PIXELS[11, 2048:])
    (tmp_path / ("data_batch_4.bin" if read is read_cifar10_binary else "data_batch_4")).unlink()
    with pytest.raises(ValueError, match=r"data_batch_4.*: no such file; expected all six batches"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes; expected a multiple of 3073"),
        (b"x" * 3072, "3072 bytes; expected a multiple of 3073"),
        (b"\x0a" + b"x" * 3072, "labels from 10 to 10; expected 0 to 9"),
    ],
)
def test_bad_binary_batches_give_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    write_binary(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_3\.bin: {message}"):
        read_cifar10_binary(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": PIXELS[:2, :5]}, r"'data' .*; expected an array of shape \(n, 3072\)"),
        ({"data": [1, 2]}, "'data' .*; expected an array"),
        ({"data": PIXELS[:0], "labels": []}, "'data' .*; expected an array"),
        ({"labels": [1]}, "1 labels for 2 images"),
        ({"labels": [1, "x"]}, "'labels' .*; expected a list of integers"),
        ({"labels": [1, 10**30]}, "'labels' .*; expected a list of integers"),
        ({"labels": [1, -1]}, "labels from -1 to 1; expected 0 to 9"),
        ({"labels": None}, "'labels' .*; expected a list of integers"),
    ],
)
def test_bad_python_batches_give_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_python(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"data_batch_1: {message}"):
        read_cifar10_python(tmp_path)


def test_a_hostile_batch_is_rejected(tmp_path: Path) -> None:
    write_python(tmp_path)
    (tmp_path / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match=r"test_batch: .* os\.system is not allowed"):
        read_cifar10_python(tmp_path)
