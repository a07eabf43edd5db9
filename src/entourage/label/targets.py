"""From what users write as labels and priors to the numbers the game starts from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Targets:
    """The labels of n points as numbers.

    Attributes:
        classes: the m classes, sorted, or in the order they were given.
        codes: the class of each point, shape (n,), -1 where unlabelled.
        missing_label: how an undecided point is written in the users' own type of label: -1 or "".
    """

    classes: NDArray[np.generic]
    codes: NDArray[np.int64]
    missing_label: int | str

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which points have a label, shape (n,)."""
        return self.codes >= 0

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which classes have a label, shape (m,)."""
        return np.bincount(self.codes[self.labelled], minlength=len(self.classes)) > 0

    def one_hot(self) -> Floats:
        """Certainty for the labelled and zeros for the rest, shape (n, m), float32."""
        return np.eye(len(self.classes), dtype=np.float32)[self.codes] * self.labelled[:, None]

    def decode(self, codes: NDArray[np.integer]) -> NDArray[np.generic]:
        """Codes in the users' own labels; -1 becomes `missing_label`."""
        if (codes >= 0).all():
            return np.asarray(self.classes[codes])
        padded = np.append(self.classes, np.array([self.missing_label], dtype=np.array(self.missing_label).dtype))
        return np.asarray(padded[codes])


@contextmanager
def ignore_class_count_warning() -> Iterator[None]:
    """Keeps scikit-learn from warning of classes with hardly a label each, which are what transduction is for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater")
        yield


def read_targets(y: NDArray[np.generic], classes: ArrayLike | None = None) -> Targets:
    """Tells labelled from unlabelled points.

    Args:
        y: labels, shape (n,). Unlabelled is -1; among text also "", "-1" and None.
        classes: all classes there are, if some may be without a label; by default those that occur.

    Raises:
        ValueError: if nothing is labelled, or a label is not among the classes.
    """
    labelled = labelled_mask(y)
    if not labelled.any():
        raise ValueError(f"none of the {len(y)} points is labelled; expected at least one label other than -1")
    labels = y[labelled]
    if labels.dtype == object and not all(isinstance(label, str) for label in labels):
        labels = np.array(labels.tolist())
    with ignore_class_count_warning():
        check_classification_targets(labels)
    known = np.unique(labels) if classes is None else np.asarray(classes)
    if not labelled_mask(known).all():
        raise ValueError(f"the classes {known.tolist()} hold what means unlabelled; expected none of -1, '' and None")
    if len(np.unique(known)) != len(known):
        raise ValueError(f"classes names one twice: {known.tolist()}")
    order = np.argsort(known)
    index = np.searchsorted(known, labels, sorter=order).clip(max=len(known) - 1)
    unexpected = known[order[index]] != labels
    if unexpected.any():
        raise ValueError(f"label {labels[unexpected][0]!s} is not among the classes {', '.join(map(str, known[:20]))}")
    codes = np.full(len(y), -1, dtype=np.int64)
    codes[labelled] = order[index]
    return Targets(known, codes, missing_label="" if known.dtype.kind in "OUS" else -1)


def fill_missing_labels(y: ArrayLike) -> ArrayLike:
    """Labels in which what pandas calls missing is -1."""
    if not isinstance(y, pd.Series) or not y.isna().any():
        return y
    values = y.to_numpy(dtype=object, copy=True)
    values[y.isna().to_numpy()] = -1
    return np.asarray(values)


def labelled_mask(y: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which entries of y are labels, shape (n,)."""
    if y.dtype.kind in "OUS":
        # What differs from itself is the NaN that pandas puts where there is no text.
        return np.array([not (v is None or v != v or str(v) in ("", "-1")) for v in y.tolist()], dtype=bool)
    return np.asarray(y != -1)


def labelled_accuracy(predicted: NDArray[np.generic], y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """The share of the points with a label that were given it.

    Args:
        predicted: a label for each point, shape (n,).
        y: the labels, shape (n,), -1 where there is none (among text also "" or None).
        sample_weight: of the points, shape (n,).

    Raises:
        ValueError: none of them has a label, or there are more or fewer labels than points.
    """
    labels = np.asarray(fill_missing_labels(y))
    if len(labels) != len(predicted):
        raise ValueError(f"{len(labels)} labels for {len(predicted)} points to score; expected one each")
    known = labelled_mask(labels)
    if not known.any():
        raise ValueError(f"none of the {len(labels)} points to score is labelled; expected at least one")
    correct = predicted[known] == labels[known]
    return float(np.average(correct, weights=None if sample_weight is None else np.asarray(sample_weight)[known]))


def initial_distributions(targets: Targets, prior: ArrayLike | None) -> Floats:
    """X(0): certainty for the labelled, the prior for the rest (thesis, chapter 3, step 1).

    A class without a single label is left out, for nothing could ever speak for it: never predicted, and said so once.

    Args:
        targets: the labels.
        prior: a distribution over the classes for each point, shape (n, m), 0 where a label is excluded, or None.

    Returns:
        Distributions, shape (n, m), float32.

    Raises:
        ValueError: if the prior has another shape, is no distribution, leaves a point no label, or denies a given one.
    """
    n, m = len(targets.codes), len(targets.classes)
    x = np.full((n, m), 1 / m) if prior is None else _check_prior(prior, targets)
    if not targets.seen.all():
        missing = ", ".join(map(str, targets.classes[~targets.seen]))
        warnings.warn(f"no point is labelled {missing}: this is never predicted", stacklevel=3)
        x = np.where(targets.seen, x, 0)
    x = np.where(targets.labelled[:, None], targets.one_hot(), x)
    total = x.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        raise ValueError(f"the prior leaves point {int(np.argmin(total))} no label that any point has")
    return np.asarray(x / total, dtype=np.float32)


def _check_prior(prior: ArrayLike, targets: Targets) -> Floats:
    p = np.asarray(prior, dtype=np.float64)
    n, m = len(targets.codes), len(targets.classes)
    if p.shape != (n, m):
        raise ValueError(f"the prior has shape {p.shape}; expected ({n}, {m}): a row a point and a column a class")
    if not np.isfinite(p).all() or (p < 0).any():
        row = int(np.argmin((np.isfinite(p) & (p >= 0)).all(axis=1)))
        raise ValueError(f"row {row} of the prior is no distribution; expected finite numbers of 0 or more")
    denied = targets.labelled & (p[np.arange(n), targets.codes] == 0)
    if denied.any():
        row = int(np.argmax(denied))
        label = targets.classes[targets.codes[row]]
        raise ValueError(f"point {row} is labelled {label}, which is unknown to its prior (probability 0)")
    return p


def exclusion_prior(n: int, classes: Sequence[object], excluded: Mapping[int, Sequence[object]]) -> Floats:
    """A prior in which some points are known not to bear some labels: uniform over what is left to each.

    Args:
        n: number of points.
        classes: the m classes, in the order of the columns.
        excluded: for a point's position, the labels it cannot have.

    Returns:
        Distributions, shape (n, m): the multi-peaked start of chapter 3, step 1.

    Raises:
        ValueError: on a position or label that does not exist, or a point left without labels.
    """
    columns = {label: column for column, label in enumerate(classes)}
    if len(columns) != len(classes):
        raise ValueError(f"classes names one twice: {list(classes)}")
    x = np.ones((n, len(columns)), dtype=np.float32)
    for point, labels in excluded.items():
        if not 0 <= point < n:
            raise ValueError(f"labels are excluded for point {point}; expected a position from 0 to {n - 1}")
        for label in labels:
            if label not in columns:
                raise ValueError(f"label {label!r} is excluded for point {point} but is not among the classes")
            x[point, columns[label]] = 0
        if not x[point].any():
            raise ValueError(f"all labels are excluded for point {point}; expected one or more to be left")
    return np.asarray(x / x.sum(axis=1, keepdims=True))
