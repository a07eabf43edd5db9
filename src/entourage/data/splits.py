"""Stratified random splits of images, and stratified random samples of labels."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entourage.data.image_set import TEST, TRAIN
from entourage.validation import is_integer


def stratified_split(labels: ArrayLike, train_fraction: float, seed: int) -> NDArray[np.uint8]:
    """Split each class at random in the same proportion.

    The number of training images of a class with c images is `train_fraction` times c, rounded to an integer (halves
    are rounded up). A class with two or more images has at least one in each part; a class with a single image has it
    in the training part.

    Args:
        labels: classes, shape (n,), from 0.
        train_fraction: fraction of the training images, between 0 and 1.
        seed: random seed.

    Returns:
        0 for training, 1 for testing, shape (n,).

    Raises:
        ValueError: the fraction is not between 0 and 1, or the labels are not classes.
    """
    if not 0.0 < train_fraction < 1.0:
        raise ValueError(f"train_fraction is {train_fraction}; expected a fraction above 0 and below 1")
    classes = _check_labels(labels)
    split = np.full(len(classes), TEST, dtype=np.uint8)
    for members in _shuffled_classes(classes, np.random.default_rng(seed)):
        size = max(1, min(_round(train_fraction * len(members)), len(members) - 1))
        split[members[:size]] = TRAIN
    return split


def sample_labels(labels: ArrayLike, amount: int | float, seed: int) -> NDArray[np.int64]:
    """Sample the images that keep their labels, at least one of each class.

    If `amount` is an integer, it is the total number of labels. Each class receives the same number; the remainder is
    distributed over classes drawn at random, one label each. A class with too few images keeps all of its labels, and
    the other classes receive the difference. If `amount` is a float, each class keeps this fraction of its labels,
    rounded to an integer (halves are rounded up), and at least one.

    With the same seed, the sample for a larger fraction contains the sample for a smaller one. The same is true of
    numbers that leave no remainder: samples of 10, 50 and 100 labels differ by the added labels only.

    Args:
        labels: classes of all images, shape (n,), from 0.
        amount: an int from the number of classes to n, or a float above 0 and at most 1.
        seed: random seed.

    Returns:
        Indices of the images that keep their labels, ascending.

    Raises:
        ValueError: the amount is out of range, or the labels are not classes.
    """
    classes = _check_labels(labels)
    rng = np.random.default_rng(seed)
    members = _shuffled_classes(classes, rng)
    available = np.array([len(indices) for indices in members])
    if is_integer(amount):
        quota = _spread(int(amount), available, rng)
    elif isinstance(amount, float) and 0.0 < amount <= 1.0:
        quota = np.array([max(1, _round(amount * size)) for size in available.tolist()])
    else:
        raise ValueError(f"amount is {amount!r}; expected an int (total number) or a float above 0 and at most 1.0")
    sampled = [indices[:count] for indices, count in zip(members, quota.tolist(), strict=True)]
    return np.sort(np.concatenate(sampled))


def _spread(total: int, available: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the number of labels per class, as equal as the sizes of the classes allow."""
    if not len(available) <= total <= available.sum():
        span = f"from {len(available)} (one per class) to {available.sum()} (all images)"
        raise ValueError(f"amount is {total} labels; expected {span}")
    quota = np.zeros_like(available)
    while total > 0:
        open_classes = np.flatnonzero(quota < available)
        each = total // len(open_classes)
        if each == 0:
            open_classes, each = rng.choice(open_classes, total, replace=False), 1
        taken = np.minimum(each, available[open_classes] - quota[open_classes])
        quota[open_classes] += taken
        total -= int(taken.sum())
    return quota


def _shuffled_classes(classes: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the indices of the images of each class, in random order."""
    order = np.argsort(classes, kind="stable")
    _, starts = np.unique(classes[order], return_index=True)
    return [rng.permutation(members) for members in np.split(order, starts[1:])]


def _check_labels(labels: ArrayLike) -> NDArray[np.int64]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or not len(classes) or classes.dtype.kind not in "iu":
        raise ValueError(f"labels are {classes.dtype} of shape {classes.shape}; expected integers, shape (n,)")
    if classes.min() < 0:
        raise ValueError(f"labels have the minimum {classes.min()}; expected classes from 0 for all images")
    return classes.astype(np.int64)


def _round(value: float) -> int:
    return int(np.floor(value + 0.5 + 1e-9))  # 0.7 * 45 is 31.499999999999996 in floating point, but must give 32
