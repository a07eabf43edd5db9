"""CIFAR-10's own batches, in the binary and in the python version."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.data.sources import RawImages
from entourage.io.safe_pickle import read_plain_pickle

_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BATCHES = [*((f"data_batch_{number}", TRAIN) for number in range(1, 6)), ("test_batch", TEST)]

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_cifar10_binary(folder: str | Path) -> ImageSet:
    """Read data_batch_1.bin to data_batch_5.bin and test_batch.bin: a label and 3,072 pixels for each image.

    Args:
        folder: where they are, usually called cifar-10-batches-bin.

    Returns:
        The images as they are, 50,000 for training and then 10,000 for testing.

    Raises:
        ValueError: a batch is missing, or not of that form.
    """
    return _join(Path(folder), ".bin", _read_binary)


def read_cifar10_python(folder: str | Path) -> ImageSet:
    """Read data_batch_1 to data_batch_5 and test_batch: pickles, of which nothing is run (see `safe_pickle`).

    Args:
        folder: where they are, usually called cifar-10-batches-py.

    Returns:
        As `read_cifar10_binary`, image for image.

    Raises:
        ValueError: a batch is missing, not of that form, or more than a plain pickle.
    """
    return _join(Path(folder), "", _read_python)


def _join(folder: Path, suffix: str, read: Callable[[Path], Batch]) -> ImageSet:
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    split: list[NDArray[np.uint8]] = []
    for name, part in _BATCHES:
        path = folder / (name + suffix)
        if not path.is_file():
            raise ValueError(f"{path}: no such file; expected all six batches of CIFAR-10")
        batch, classes = read(path)
        if len(classes) and not 0 <= classes.min() <= classes.max() < len(_CLASSES):
            raise ValueError(f"{path}: labels from {classes.min()} to {classes.max()}; expected 0 to 9")
        pixels.append(batch)
        labels.append(classes)
        split.append(np.full(len(batch), part, dtype=np.uint8))
    values = np.concatenate(pixels).reshape(-1, *_SHAPE)  # (n, 3072) -> (n, 3, 32, 32)
    parts = np.concatenate(split)
    n_train = int((parts == TRAIN).sum())
    train_items = [f"train/{place:05d}" for place in range(n_train)]
    test_items = [f"test/{place:05d}" for place in range(len(parts) - n_train)]
    return ImageSet(
        name=str(folder),
        source=RawImages(values, np.arange(len(values))),
        labels=np.concatenate(labels),
        class_names=list(_CLASSES),
        split=parts,
        items=train_items + test_items,
    )


def _read_binary(path: Path) -> Batch:
    try:
        records = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    if len(records) == 0 or len(records) % (1 + _PIXELS):
        raise ValueError(f"{path}: {len(records)} bytes; expected a multiple of {1 + _PIXELS}, label and pixels")
    records = records.reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _read_python(path: Path) -> Batch:
    entries = read_plain_pickle(path)
    pixels, labels = entries.get("data"), entries.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
        raise ValueError(f"{path}: no array 'data' of shape (n, {_PIXELS}); found: {', '.join(entries) or 'nothing'}")
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 256 for label in labels):
        raise ValueError(f"{path}: no list 'labels' of small integers; found: {', '.join(entries)}")
    if len(labels) != len(pixels):
        raise ValueError(f"{path}: {len(labels)} labels for {len(pixels)} images; expected as many")
    return pixels, np.array(labels, dtype=np.int64)
