"""Which images are for training, and which of them keep their labels: drawn class by class, from a seed."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entourage.data.image_set import TEST, TRAIN
from entourage.validation import is_integer


def stratified_split(labels: ArrayLike, train_fraction: float, seed: int) -> NDArray[np.uint8]:
    """Split each class at random in the same proportion.

    Of a class with c images, `train_fraction` times c, rounded (a half upwards), are for training; but a class with two
    or more has at least one on each side, and a class with a single image has it for training.

    Args:
        labels: classes, shape (n,), from 0.
        train_fraction: share that is for training, between 0 and 1.
        seed: the same seed gives the same split.

    Returns:
        0 for training, 1 for testing, shape (n,).

    Raises:
        ValueError: the share is not between 0 and 1, or the labels are not classes.
    """
    if not 0.0 < train_fraction < 1.0:
        raise ValueError(f"train_fraction is {train_fraction}; expected a share above 0 and below 1")
    classes = _check_labels(labels)
    split = np.full(len(classes), TEST, dtype=np.uint8)
    for members in _shuffled_classes(classes, np.random.default_rng(seed)):
        size = max(1, min(_round(train_fraction * len(members)), len(members) - 1))
        split[members[:size]] = TRAIN
    return split


def sample_labels(labels: ArrayLike, amount: int | float, seed: int) -> NDArray[np.int64]:
    """Choose which images keep their labels, at least one of each class.

    An integer is a number of labels in all, spread evenly: each class gets as many, and what is left over goes to
    classes drawn at random, one each; a class with too few images gives all it has, and the others make up for it.
    A float is a share of each class: of c images, share times c, rounded (a half upwards), and at least one.

    With one seed, a larger share keeps every label that a smaller one keeps, and so does a larger number where both
    spread without a remainder: results for 10, 50 and 100 labels differ by the added labels alone.

    Args:
        labels: the classes of all images, shape (n,), from 0.
        amount: an int of at least one for each class and at most n, or a float above 0 and at most 1.
        seed: the same seed gives the same choice.

    Returns:
        Positions of the images that keep their labels, ascending.

    Raises:
        ValueError: the amount is outside its range, or the labels are not classes.
    """
    classes = _check_labels(labels)
    random = np.random.default_rng(seed)
    members = _shuffled_classes(classes, random)
    available = np.array([len(indices) for indices in members])
    if is_integer(amount):
        quota = _spread(int(amount), available, random)
    elif isinstance(amount, float) and 0.0 < amount <= 1.0:
        quota = np.array([max(1, _round(amount * size)) for size in available.tolist()])
    else:
        raise ValueError(f"amount is {amount!r}; expected an int (labels in all) or a float above 0 and at most 1.0")
    sampled = [indices[:count] for indices, count in zip(members, quota.tolist(), strict=True)]
    return np.sort(np.concatenate(sampled))


def _spread(total: int, available: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """How many each class gives, as evenly as their sizes allow."""
    if not len(available) <= total <= available.sum():
        span = f"from {len(available)} (one for each class) to {available.sum()} (all there are)"
        raise ValueError(f"amount is {total} labels; expected {span}")
    quota = np.zeros_like(available)
    while total > 0:
        open_classes = np.flatnonzero(quota < available)
        each = total // len(open_classes)
        if each == 0:
            open_classes, each = random.choice(open_classes, total, replace=False), 1
        taken = np.minimum(each, available[open_classes] - quota[open_classes])
        quota[open_classes] += taken
        total -= int(taken.sum())
    return quota


def _shuffled_classes(classes: NDArray[np.int64], random: np.random.Generator) -> list[NDArray[np.int64]]:
    """The positions of each class, in random order."""
    order = np.argsort(classes, kind="stable")
    _, starts = np.unique(classes[order], return_index=True)
    return [random.permutation(members) for members in np.split(order, starts[1:])]


def _check_labels(labels: ArrayLike) -> NDArray[np.int64]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or not len(classes) or classes.dtype.kind not in "iu":
        raise ValueError(f"labels are {classes.dtype} of shape {classes.shape}; expected integers, shape (n,)")
    if classes.min() < 0:
        raise ValueError(f"labels go down to {classes.min()}; expected classes from 0, without unlabelled images")
    return classes.astype(np.int64)


def _round(value: float) -> int:
    return int(np.floor(value + 0.5 + 1e-9))  # 0.7 * 45 is 31.499999999999996 in floating point, and means 31.5
