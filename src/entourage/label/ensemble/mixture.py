"""Gaussian mixture with one covariance, fitted to labelled and unlabelled points by expectation maximisation.

A class is a Gaussian, and all have the same covariance, so that the model is linear discriminant analysis whose means
and covariance also use the unlabelled points. It finds classes that differ in directions of small variance, which the
distances of a graph miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.decomposition import PCA

from entourage.label.targets import Floats

MAX_COMPONENTS = 40  # principal components of wider features, in which the covariance is estimated
LABEL_WEIGHT = 3.0  # of a labelled point relative to one whose class is certain
N_ITER = 10  # more iterations move farther from the labels, without a gain


@dataclass(frozen=True)
class GaussianMixture:
    """A fitted mixture.

    Attributes:
        projection: principal components of the features; None if these are few.
        weights: log odds are linear in the features, shape (d, m).
        offsets: constant part of the log odds, shape (m,); minus infinity for a class without points.
    """

    projection: PCA | None
    weights: Floats
    offsets: Floats

    def predict_proba(self, X: Floats) -> Floats:
        """Return distributions of points, shape (q, m), for features of shape (q, d)."""
        features = X if self.projection is None else self.projection.transform(X)
        return np.asarray(softmax(features @ self.weights + self.offsets, axis=1))


def fit_mixture(X: Floats, start: Floats, codes: NDArray[np.int64], shrinkage: float) -> GaussianMixture:
    """Fit a Gaussian to each class, with one covariance, to labelled and unlabelled points.

    An unlabelled point has the weight of its largest probability in `start`.

    Args:
        X: features, shape (n, d).
        start: initial distributions, shape (n, m); classes without any probability stay empty.
        codes: class of each point, shape (n,), -1 where unlabelled.
        shrinkage: fraction of the covariance that is replaced by a multiple of the identity, in (0, 1].

    Returns:
        The mixture. Costs O(n d^2), and O(n d m) for each of N_ITER iterations, with at most MAX_COMPONENTS for d.
    """
    projection = None
    if X.shape[1] > MAX_COMPONENTS and len(X) > MAX_COMPONENTS:
        projection = PCA(MAX_COMPONENTS, random_state=0).fit(X)
    features = X if projection is None else projection.transform(X)
    centre = features.mean(axis=0)
    features = features - centre
    labelled = np.flatnonzero(codes >= 0)
    used = start.sum(axis=0) > 0
    x = np.where(start.sum(axis=1, keepdims=True) > 0, start, used / used.sum())
    x[labelled] = np.eye(x.shape[1])[codes[labelled]]
    point_weights = x.max(axis=1)
    point_weights[labelled] = LABEL_WEIGHT
    scatter = (features * point_weights[:, None]).T @ features  # (d, d), the same in all iterations
    weights, offsets = np.zeros((features.shape[1], x.shape[1])), np.where(used, 0.0, -np.inf)
    for _ in range(N_ITER):
        weighted = x[:, used] * point_weights[:, None]
        weights[:, used], offsets[used] = _discriminant(features, weighted, scatter, shrinkage)
        x = softmax(features @ weights + offsets, axis=1)
        x[labelled] = np.eye(x.shape[1])[codes[labelled]]
    return GaussianMixture(projection, weights, offsets - centre @ weights)


def _discriminant(features: Floats, weighted: Floats, scatter: Floats, shrinkage: float) -> tuple[Floats, Floats]:
    """Return weights, shape (d, m), and offsets, shape (m,), of the log odds for weighted distributions."""
    counts = weighted.sum(axis=0) + np.finfo(np.float64).tiny  # (m,)
    means = (weighted.T @ features) / counts[:, None]  # (m, d)
    covariance = (scatter - (means * counts[:, None]).T @ means) / counts.sum()
    d = len(covariance)
    scale = max(float(np.trace(covariance)) / d, np.finfo(np.float64).eps)
    covariance = (1 - shrinkage) * covariance + shrinkage * scale * np.eye(d)
    weights = np.linalg.solve(covariance, means.T)
    return weights, -0.5 * (means.T * weights).sum(axis=0)
