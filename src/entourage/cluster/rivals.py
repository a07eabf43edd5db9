"""What a user would reach for instead: chance, k-means, DBSCAN and HDBSCAN, for the same tables.

k-means is given the true k, or finds it by the silhouette; DBSCAN and HDBSCAN get the setting that is best on
validation sets, and keep it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans
from sklearn.metrics import silhouette_score

from entourage.cluster.measures import mean_scores, score
from entourage.report.counted import counted

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Rival = Callable[[Floats], Labels]

RADII = (0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 3, 5)  # of DBSCAN, in extents
CROWDS = (2, 3, 4, 5, 8)  # min_samples
SIZES = (3, 4, 5, 6, 8, 10, 15)  # min_cluster_size of HDBSCAN


def random_clusters(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """Chance: k uniform, then a cluster for each item."""
    rng = np.random.default_rng([seed, len(X)])
    return rng.integers(0, rng.integers(1, k_max + 1), len(X))


def k_means(X: Floats, k: int, seed: int = 0) -> Labels:
    """k-means, given the true k."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies of a point leave clusters empty
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(X))


def k_means_silhouette(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """k-means, k by the best mean silhouette, which is not defined for one cluster: 2 is the least it can find."""
    best = -2.0
    found: Labels = np.zeros(len(X), dtype=np.int64)
    for k in range(2, min(k_max, len(X) - 1) + 1):
        labels = k_means(X, k, seed)
        if 1 < len(np.unique(labels)) < len(X) and (width := float(silhouette_score(X, labels))) > best:
            best, found = width, labels
    return found


def dbscan(X: Floats, radius: float, crowd: int) -> Labels:
    """DBSCAN; the radius in extents of the set, so that one setting can do for sets of any size."""
    return np.asarray(DBSCAN(eps=max(radius * _extent(X), 1e-12), min_samples=crowd).fit_predict(X))


def hdbscan(X: Floats, size: int, single: bool, crowd: int | None = None) -> Labels:
    """HDBSCAN; `single` allows that all items are one cluster."""
    if len(X) <= size:
        return np.zeros(len(X), dtype=np.int64)
    model = HDBSCAN(min_cluster_size=size, min_samples=crowd, allow_single_cluster=single, copy=True)
    return np.asarray(model.fit_predict(X))


def best_dbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Rival, str]:
    """DBSCAN with the setting of the lowest misclassification rate on the sets, and its name."""
    settings = (
        (partial(dbscan, radius=r, crowd=c), f"radius {r}, {counted(c, 'neighbours')}")
        for r, c in product(RADII, CROWDS)
    )
    return _best(settings, sets)


def best_hdbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Rival, str]:
    """HDBSCAN with the setting of the lowest misclassification rate on the sets, and its name."""
    settings = (
        (
            partial(hdbscan, size=s, single=one, crowd=c),
            f"size {s}, {counted(c or s, 'neighbours')}{', one allowed' * one}",
        )
        for s, one, c in product(SIZES, (False, True), (None, 1, 3))
    )
    return _best(settings, sets)


def _best(settings: Iterable[tuple[Rival, str]], sets: Sequence[tuple[Floats, Labels]]) -> tuple[Rival, str]:
    if not sets:
        raise ValueError("there are no validation sets to choose a setting by; expected at least one")
    rated = [(mean_scores([score(truth, rival(X)) for X, truth in sets]).mr, rival, name) for rival, name in settings]
    _, rival, name = min(rated, key=lambda one: one[0])
    return rival, name


def _extent(X: Floats) -> float:
    return float((X.max(axis=0) - X.min(axis=0)).max())
