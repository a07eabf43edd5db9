"""Combination of distributions by their quality on hidden labels, and estimates of accuracy without the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.label.targets import Floats

# Selected on 20 data sets (KEEL, digits, Reuters, Caltech-101, speakers) with draws of labels that no table uses.
PRIOR_STRENGTH = 5.0  # pseudo-labels with which the prior weights count against the hidden labels
MIN_PROBABILITY = (
    0.02  # fraction of a uniform distribution in each likelihood: a single error does not exclude a member
)
SHARPNESS = 1.2  # prior mode of the exponent of the mixture
SHARPNESS_STRENGTH = 5.0  # precision of the logarithm of an exponent
SHARPNESS_GRID = np.geomspace(0.25, 6, 30)
MAX_STANDARD_ERROR = 0.065  # of the accuracy on hidden labels; confidences are not reliable beyond it
EXPONENTS = (0.05, 100.0)  # smallest and largest of `confidence_exponent`
COVERAGES = (0.5, 0.8, 0.9, 1.0)


def stacking_weights(hidden: Floats, codes: NDArray[np.int64], prior: Floats, n_iter: int = 100) -> Floats:
    """Compute the weights of a mixture of distributions that explain hidden labels, by expectation maximisation.

    Args:
        hidden: distributions of the h hidden labels by each of s members, shape (s, h, m).
        codes: class of each hidden label, shape (h,).
        prior: prior weight of each member, shape (s,), positive; scaled to the sum PRIOR_STRENGTH.
        n_iter: number of iterations.

    Returns:
        Weights, shape (s,), which sum to 1; the prior weights if no label is hidden.
    """
    prior = prior / prior.sum()
    likelihood = _likelihood(hidden, codes)  # (s, h)
    weights = prior
    for _ in range(n_iter if len(codes) else 0):
        responsibility = weights[:, None] * likelihood
        responsibility = responsibility / responsibility.sum(axis=0)
        weights = responsibility.sum(axis=1) + PRIOR_STRENGTH * prior
        weights = weights / weights.sum()
    return weights


def best_sharpness(hidden: Floats, codes: NDArray[np.int64], mode: float = SHARPNESS) -> float:
    """Return the exponent of distributions that makes hidden labels most probable; 1 if no label is hidden.

    Args:
        hidden: distributions of the h hidden labels, shape (h, m).
        codes: class of each hidden label, shape (h,).
        mode: the most probable exponent without hidden labels.
    """
    if not len(codes):
        return 1.0
    score = [
        np.log(_likelihood(sharpen(hidden, exponent)[None], codes)).sum()
        - SHARPNESS_STRENGTH * np.log(exponent / mode) ** 2
        for exponent in SHARPNESS_GRID
    ]
    return float(SHARPNESS_GRID[int(np.argmax(score))])


def sharpen(x: Floats, exponent: float) -> Floats:
    """Raise distributions to a power and normalise them, shape (n, m); above 1 they become more certain."""
    tiny = np.finfo(x.dtype).tiny
    powered = (x / np.maximum(x.max(axis=1, keepdims=True), tiny)) ** exponent  # the largest is 1: no underflow
    return np.asarray(powered / np.maximum(powered.sum(axis=1, keepdims=True), tiny))


def confidence_exponent(x: Floats, level: float, n_iter: int = 25) -> float:
    """Return the exponent of distributions that gives them a mean confidence, so that methods can be averaged.

    Args:
        x: distributions, shape (n, m); rows of zeros do not count.
        level: mean of the largest probabilities, between 0 for uniform distributions and 1 for one-hot ones.
        n_iter: steps of the bisection.

    Returns:
        The exponent, within EXPONENTS.
    """
    x = x[x.sum(axis=1) > 0]
    goal = 1 / x.shape[1] + level * (1 - 1 / x.shape[1])
    low, high = np.log(EXPONENTS)
    for _ in range(n_iter if len(x) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if sharpen(x, np.exp(middle)).max(axis=1).mean() < goal else (low, middle)
    return float(np.exp((low + high) / 2))


def standard_error(accuracy: float, n: int) -> float:
    """Return the standard error of an accuracy that was measured on n items; infinite without any."""
    return float(np.sqrt(accuracy * (1 - accuracy) / n)) if n else float("inf")


def _likelihood(hidden: Floats, codes: NDArray[np.int64]) -> Floats:
    chosen = hidden[:, np.arange(len(codes)), codes]
    return np.asarray((1 - MIN_PROBABILITY) * chosen + MIN_PROBABILITY / hidden.shape[2])


@dataclass(frozen=True)
class Coverage:
    """Estimated accuracy if only the most confident items are labelled.

    Attributes:
        fraction: fraction of the items that get a label.
        confidence: smallest confidence among them.
        accuracy: their estimated accuracy: the mean of their confidences.
    """

    fraction: float
    confidence: float
    accuracy: float


def coverage_table(confidence: Floats, fractions: Sequence[float] = COVERAGES) -> list[Coverage]:
    """Estimate the accuracy on the most confident items without the truth.

    Args:
        confidence: confidence of each item whose label was found, shape (n,).
        fractions: fractions of the items, in (0, 1].

    Returns:
        One row per fraction; none without items.
    """
    ranked = np.sort(np.asarray(confidence, dtype=np.float64))[::-1]
    rows = []
    for fraction in fractions if len(ranked) else ():
        chosen = ranked[: max(1, round(fraction * len(ranked)))]
        rows.append(Coverage(fraction, float(chosen[-1]), float(chosen.mean())))
    return rows


def calibration_error(correct: NDArray[np.bool_], confidence: Floats, bins: int = 15) -> float:
    """Compute the mean distance between confidence and accuracy over equal bins, weighted by their sizes.

    Args:
        correct: whether each label is right, shape (n,).
        confidence: confidence of each label, in [0, 1], shape (n,).
        bins: number of bins.

    Returns:
        The error, in [0, 1]; 0 is perfect calibration.
    """
    index = np.clip((confidence * bins).astype(int), 0, bins - 1)
    gaps = [
        abs(confidence[index == b].mean() - correct[index == b].mean()) * np.mean(index == b) for b in np.unique(index)
    ]
    return float(np.sum(gaps))
