"""How good a graph is, as far as the given labels alone can tell."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.balance import fit_labeller
from entourage.label.targets import Floats

FOLDS = 5


def held_out_accuracy(
    labeller: GraphLabeller,
    w: sparse.csr_matrix,
    codes: NDArray[np.int64],
    prior: Floats | None = None,
    *,
    balance: bool = False,
) -> float | None:
    """Cross-validated accuracy on the given labels.

    The given labels are dealt into folds, class by class; the labels of each fold are hidden in turn and found by the
    labeller from the others. A class with a single label keeps it, since nothing could find it.

    Args:
        labeller: unfitted.
        w: the graph, shape (n, n), as `checked_graph` gives it.
        codes: labels from 0, -1 where unknown, shape (n,).
        prior: what is known beforehand of each point, shape (n, m), or None.
        balance: see `fit_labeller`; frequencies are those of the labels in sight.

    Returns:
        The share of hidden labels that were found; None if no class has two labels. Costs at most five fits.
    """
    fold = _deal(codes)  # (n,)
    used = [number for number in range(FOLDS) if (fold == number).any()]
    if not used:
        return None
    right = []
    for number in used:
        hidden = fold == number
        with warnings.catch_warnings():  # that some points are out of reach is of no interest here
            warnings.simplefilter("ignore")
            fitted = fit_labeller(clone(labeller), w, np.where(hidden, -1, codes), prior, balance=balance)
        right.append(fitted.transduction_[hidden] == codes[hidden])
    return float(np.concatenate(right).mean())


def hidden_labels(codes: NDArray[np.int64]) -> int:
    """How many of the given labels `held_out_accuracy` hides in turn: all, but for those that are alone in a class."""
    return int((_deal(codes) >= 0).sum())


def clearly_less(now: float, before: float, labels: int) -> bool:
    """Whether so many labels are found less well than before by more than chance explains: two standard errors
    of a difference.

    Args:
        now: the share that is found now.
        before: the share that was found before.
        labels: how many were looked for.
    """
    share = (before * labels + 1) / (labels + 2)  # that all were found does not mean that all would be
    return now < before - 2 * math.sqrt(2 * share * (1 - share) / labels)


def _deal(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fold in which each label is hidden, -1 for those that never are; one of each class is always in sight."""
    fold = np.full(len(codes), -1)
    for label in np.unique(codes[codes >= 0]):
        members = np.random.default_rng([int(label), 0]).permutation(np.flatnonzero(codes == label))
        if len(members) > 1:
            fold[members] = np.arange(len(members)) % FOLDS
    return fold
