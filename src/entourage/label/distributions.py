"""Distributions over the classes, a row a point: made of votes, weighed by what is known beforehand, and decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from entourage.label.targets import Floats

if TYPE_CHECKING:
    from entourage.label.base import Problem


def in_parts_of_1(x: Floats, otherwise: Floats | float = 0.0) -> Floats:
    """Rows over their sum, shape (n, m); those that have nothing are `otherwise`, a value or such rows."""
    total = x.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, x / np.where(total > 0, total, 1), otherwise))


def with_prior(x: Floats, problem: Problem) -> Floats:
    """Weighs the answer of a method that knows no priors by the prior of each unlabelled point; rows sum to 1."""
    weighed = np.where(problem.targets.labelled[:, None], x, x * problem.start)
    return in_parts_of_1(weighed, problem.start)


def prefers(x: Floats) -> NDArray[np.bool_]:
    """Which rows have one label ahead of all others, shape (n,): a tie means that nothing that counts reached them."""
    if x.shape[1] == 1:
        return np.ones(len(x), dtype=bool)
    best = np.partition(x, -2, axis=1)[:, -2:]  # (n, 2)
    return np.asarray(best[:, 1] - best[:, 0] > 1e-7)
