"""Conversion of labels and priors to class codes and initial distributions."""

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
    """The labels of n points as class codes.

    Attributes:
        classes: the m classes, sorted unless passed explicitly.
        codes: class index of each point, shape (n,), -1 where unlabelled.
        missing_label: value of `decode` for undecided points: "" for text labels, otherwise -1.
    """

    classes: NDArray[np.generic]
    codes: NDArray[np.int64]
    missing_label: int | str

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Mask of the labelled points, shape (n,)."""
        return self.codes >= 0

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask of the classes with at least one labelled point, shape (m,)."""
        return np.bincount(self.codes[self.labelled], minlength=len(self.classes)) > 0

    def one_hot(self) -> Floats:
        """Return one-hot rows for labelled and zeros for unlabelled points, shape (n, m), float32."""
        return np.eye(len(self.classes), dtype=np.float32)[self.codes] * self.labelled[:, None]

    def decode(self, codes: NDArray[np.integer]) -> NDArray[np.generic]:
        """Return the class of each code; -1 becomes `missing_label`."""
        if (codes >= 0).all():
            return np.asarray(self.classes[codes])
        padded = np.append(self.classes, np.array([self.missing_label], dtype=np.array(self.missing_label).dtype))
        return np.asarray(padded[codes])


@contextmanager
def ignore_class_count_warning() -> Iterator[None]:
    """Suppress scikit-learn's warning about many classes with few labels, which is the normal case here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater")
        yield


def read_targets(y: NDArray[np.generic], classes: ArrayLike | None = None) -> Targets:
    """Convert labels to class codes.

    Args:
        y: labels, shape (n,), -1 where unlabelled ("", "-1" and None are also accepted among text labels).
        classes: all classes, if some may have no label; by default those that occur.

    Raises:
        ValueError: no point is labelled, or a label is not among the classes.
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
        raise ValueError(f"classes is {known.tolist()}; expected neither -1, '' nor None, which denote unlabelled")
    if len(np.unique(known)) != len(known):
        raise ValueError(f"classes has duplicates: {known.tolist()}; expected unique values")
    order = np.argsort(known)
    index = np.searchsorted(known, labels, sorter=order).clip(max=len(known) - 1)
    unexpected = known[order[index]] != labels
    if unexpected.any():
        raise ValueError(f"label {labels[unexpected][0]!s} is not among the classes {', '.join(map(str, known[:20]))}")
    codes = np.full(len(y), -1, dtype=np.int64)
    codes[labelled] = order[index]
    return Targets(known, codes, missing_label="" if known.dtype.kind in "OUS" else -1)


def fill_missing_labels(y: ArrayLike) -> ArrayLike:
    """Replace missing labels: NaN, or missing values of a pandas Series, by -1; return other labels unchanged.

    Numbers with NaN are of type float: they become integers again if they are whole.
    """
    if isinstance(y, pd.Series):
        if not y.isna().any():
            return y
        values = y.to_numpy(dtype=object, copy=True)
        values[y.isna().to_numpy()] = -1
        return np.asarray(values)
    if isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        y = np.array([-1 if label != label else label for label in y], dtype=object)
    labels = np.asarray(y)
    if labels.dtype.kind != "f" or not np.isnan(labels).any():
        return y
    filled = np.where(np.isnan(labels), -1, labels)
    return filled.astype(np.int64) if (filled == np.round(filled)).all() else filled


def labelled_mask(y: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return a mask of the labelled entries of y, shape (n,)."""
    if y.dtype.kind in "OUS":
        # v != v holds for NaN, which pandas uses for missing text.
        return np.array([not (v is None or v != v or str(v) in ("", "-1")) for v in y.tolist()], dtype=bool)
    return np.asarray(y != -1)


def labelled_accuracy(predicted: NDArray[np.generic], y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Compute the accuracy on the labelled points.

    Args:
        predicted: predicted label of each point, shape (n,).
        y: labels, shape (n,), -1 where unlabelled ("" or None are also accepted among text labels).
        sample_weight: weights of the points, shape (n,).

    Raises:
        ValueError: no point is labelled, or the lengths differ.
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
    """Compute X(0): one-hot rows for labelled points, the prior for the others (thesis, chapter 3, step 1).

    A class without labelled points gets probability 0, with a warning: it cannot be predicted.

    Args:
        targets: the labels.
        prior: prior distribution of each point, shape (n, m), 0 for excluded labels; None for uniform.

    Returns:
        Distributions, shape (n, m), float32.

    Raises:
        ValueError: the prior has another shape, is negative or not finite, excludes all labels of a point, or excludes
            the label of a labelled point.
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
        raise ValueError(f"prior: excludes all labels of point {int(np.argmin(total))}; expected one that a point has")
    return np.asarray(x / total, dtype=np.float32)


def _check_prior(prior: ArrayLike, targets: Targets) -> Floats:
    p = np.asarray(prior, dtype=np.float64)
    n, m = len(targets.codes), len(targets.classes)
    if p.shape != (n, m):
        raise ValueError(f"prior has shape {p.shape}; expected ({n}, {m}): one row per point, one column per class")
    if not np.isfinite(p).all() or (p < 0).any():
        row = int(np.argmin((np.isfinite(p) & (p >= 0)).all(axis=1)))
        raise ValueError(f"prior: row {row} is not a distribution; expected finite numbers of 0 or more")
    denied = targets.labelled & (p[np.arange(n), targets.codes] == 0)
    if denied.any():
        row = int(np.argmax(denied))
        label = targets.classes[targets.codes[row]]
        raise ValueError(f"prior: the label {label} of point {row} has probability 0; expected a positive number")
    return p


def exclusion_prior(n: int, classes: Sequence[object], excluded: Mapping[int, Sequence[object]]) -> Floats:
    """Build a prior that excludes labels of single points and is uniform over the remaining ones.

    Args:
        n: number of points.
        classes: the m classes, in the order of the columns.
        excluded: excluded labels by index of the point.

    Returns:
        Distributions, shape (n, m): the multi-peaked initial distributions of chapter 3, step 1.

    Raises:
        ValueError: an index or label does not exist, or all labels of a point are excluded.
    """
    columns = {label: column for column, label in enumerate(classes)}
    if len(columns) != len(classes):
        raise ValueError(f"classes has duplicates: {list(classes)}; expected unique values")
    x = np.ones((n, len(columns)), dtype=np.float32)
    for point, labels in excluded.items():
        if not 0 <= point < n:
            raise ValueError(f"excluded: has point {point}; expected an index from 0 to {n - 1}")
        for label in labels:
            if label not in columns:
                raise ValueError(f"excluded: has label {label!r} for point {point}; expected one of the classes")
            x[point, columns[label]] = 0
        if not x[point].any():
            raise ValueError(f"excluded: has all labels for point {point}; expected at least one to remain")
    return np.asarray(x / x.sum(axis=1, keepdims=True))
