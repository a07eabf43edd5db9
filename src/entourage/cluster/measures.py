"""How good a clustering is: misclassification rate, mutual information, Rand index, and the error in k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score


@dataclass(frozen=True)
class Scores:
    """Measures of one clustering, or their means over many.

    Attributes:
        mr: misclassification rate under the best one-to-one naming of clusters, in [0, 1]; 0 is perfect.
        greedy_mr: the same under a naming chosen greedily, as the original reports it: never below `mr`.
        nmi: normalised mutual information, by the arithmetic mean of the entropies (today's custom).
        nmi_geometric: the same by the geometric mean (that of the original).
        ari: adjusted Rand index; 1 is perfect, 0 what chance gives.
        k_error: |found clusters - true clusters|.
        k_right: 1 if there are as many clusters as there should be, else 0.
    """

    mr: float
    greedy_mr: float
    nmi: float
    nmi_geometric: float
    ari: float
    k_error: float
    k_right: float


def score(truth: ArrayLike, found: ArrayLike) -> Scores:
    """Measures one clustering against the truth.

    Args:
        truth: the true cluster of each item, shape (n,).
        found: the cluster each was put into, shape (n,). Names need not agree. -1, which is noise to DBSCAN, is taken
            for one more cluster, which is kinder than taking it for mistakes, but does not count towards k.

    Returns:
        The measures. Costs O(n + t f max(t, f)) for t true and f found clusters.

    Raises:
        ValueError: the two are of different length, empty or not one-dimensional.
    """
    truth, found = np.asarray(truth), np.asarray(found)
    if truth.ndim != 1 or truth.shape != found.shape or not len(truth):
        raise ValueError(f"truth has shape {truth.shape} and found {found.shape}; expected (n,) twice, n above 0")
    table = contingency(truth, found)
    k_error = float(abs(len(np.unique(truth)) - len(np.unique(found[found != -1]))))
    return Scores(
        mr=misclassification_rate(table),
        greedy_mr=greedy_misclassification_rate(table),
        nmi=float(normalized_mutual_info_score(truth, found, average_method="arithmetic")),
        nmi_geometric=float(normalized_mutual_info_score(truth, found, average_method="geometric")),
        ari=float(adjusted_rand_score(truth, found)),
        k_error=k_error,
        k_right=float(k_error == 0),
    )


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """The mean of every measure over several clusterings."""
    if not scores:
        raise ValueError("there are no scores to average; expected at least one")
    rows = np.array([list(asdict(one).values()) for one in scores])  # (s, measures)
    return Scores(*rows.mean(axis=0).tolist())


def contingency(truth: NDArray[np.generic], found: NDArray[np.generic]) -> NDArray[np.int64]:
    """How many items of each true cluster are in each found one, shape (t, f)."""
    _, row = np.unique(truth, return_inverse=True)
    _, column = np.unique(found, return_inverse=True)
    table = np.zeros((int(row.max()) + 1, int(column.max()) + 1), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table


def misclassification_rate(table: NDArray[np.int64]) -> float:
    """The share of items outside the cluster that is matched with theirs, under the best matching (Hungarian).

    Args:
        table: true by found clusters, as `contingency` gives it.
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(1 - table[rows, columns].sum() / table.sum())


def greedy_misclassification_rate(table: NDArray[np.int64]) -> float:
    """The same under a greedy matching, largest overlap first: an upper bound of the true rate."""
    left, right = table.astype(np.int64), 0
    for _ in range(min(table.shape)):
        row, column = np.unravel_index(int(left.argmax()), left.shape)
        right += int(max(left[row, column], 0))
        left[row, :] = left[:, column] = -1  # both are taken
    return float(1 - right / table.sum())
