"""Preparation of a table: distinct rows, columns of robust scale, principal components and neighbours.

Columns are divided by a trimmed standard deviation, so that neither units nor single extreme values matter, and values
far outside the trimmed range are clipped. Columns of much less than the typical spread are enlarged only in part,
because many of them are constant except for a few items. Repeated rows are processed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

TRIM = 0.01  # fraction of the values at either end that do not affect the scale of a column, at least one value
MIN_SPREAD = 0.5  # smallest divisor of a column, as a fraction of the lower median of the columns' spreads
CLIP = 0.5  # values are clipped at this fraction of the trimmed range beyond it
MAX_COMPONENTS = 30  # principal components of the distances
MAX_NEIGHBORS = 40  # neighbours of an item that are stored
MAX_DENSITY_COLUMNS = 4  # of the density of repeated rows: such tables have few distinct values


@dataclass(frozen=True)
class Scaling:
    """Map of the columns of a table to prepared coordinates.

    Attributes:
        center: of each column, shape (d,).
        scale: of each column, shape (d,); 1 for constant columns, which become zero.
        low: smallest scaled value that is not clipped, shape (d,).
        high: largest scaled value that is not clipped, shape (d,).
        rotation: principal components, shape (d, p).
        constant: whether all values of a column are equal, shape (d,).
        mean: of the scaled columns, shape (d,).
    """

    center: Floats
    scale: Floats
    low: Floats
    high: Floats
    rotation: Floats
    constant: NDArray[np.bool_]
    mean: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def fit(cls, X: Floats) -> Scaling:
        """Compute the map from rows, shape (n, d). Costs O(n d (log n + d))."""
        ordered = np.sort(X, axis=0)
        n = len(X)
        cut = min(max(1, int(np.ceil(TRIM * n))), (n - 1) // 3)
        inner = ordered[cut : n - cut]
        largest = np.maximum(np.abs(inner).max(0), 1e-300)
        center = largest * (inner / largest).mean(0)  # without overflow
        scale = largest * (inner / largest - center / largest).std(0)
        # A column with less than a few values outside the mode has no trimmed spread.
        whole = np.abs(ordered).max(0)
        whole = np.where(whole > 0, whole, 1)
        spread = whole * (ordered / whole).std(0)
        scale = np.where(scale > 1e-9 * whole, scale, spread)
        constant = ~(scale > 1e-12 * whole)
        scale = np.where(constant, 1.0, scale)
        varying = np.sort(scale[~constant])
        if len(varying):
            scale = np.maximum(scale, MIN_SPREAD * varying[(len(varying) - 1) // 2])
        low, high = ((edge - center) / scale for edge in (inner[0], inner[-1]))
        extent = CLIP * (high - low)
        narrow = extent <= 0  # the trimmed part is constant: the scale is that of the other values
        low, high = np.where(narrow, -4.0, low - extent), np.where(narrow, 4.0, high + extent)
        scaling = cls(center, scale, low, high, np.zeros((X.shape[1], 0)), constant)
        z = scaling._scaled(X)
        mean = z.mean(0)
        covariance = (z.T @ z) / n - np.outer(mean, mean)
        _, vectors = np.linalg.eigh(covariance)
        rotation = vectors[:, ::-1][:, : min(MAX_COMPONENTS, n)]
        return replace(scaling, rotation=rotation, mean=mean)

    def transform(self, X: Floats) -> Floats:
        """Return the coordinates of rows, shape (n, d) to (n, p)."""
        coordinates: Floats = (self._scaled(X) - self.mean) @ self.rotation
        return coordinates

    def _scaled(self, X: Floats) -> Floats:
        z = np.clip(X / self.scale - self.center / self.scale, self.low, self.high)
        z[:, self.constant] = 0
        return z


class PreparedTable:
    """Coordinates of the items of a set, with distances and neighbours.

    Args:
        z: coordinates in the order of decreasing variance, shape (n, p), n >= 2.
        weight: multiplicity of each item, shape (n,); None for 1.

    Attributes:
        z: coordinates, scaled to a total variance of 1.
        size: divisor of the coordinates.
        weight: multiplicity of each item, shape (n,).
    """

    def __init__(self, z: Floats, weight: Floats | None = None) -> None:
        size = float(np.sqrt(z.var(0).sum()))
        self.size = size if size > 0 else 1.0
        self.z = z / self.size
        self.weight = np.ones(len(z)) if weight is None else weight

    def __len__(self) -> int:
        return len(self.z)

    @cached_property
    def condensed(self) -> Floats:
        """Distances of all pairs in the format of scipy, shape (n (n - 1) / 2,)."""
        return np.asarray(pdist(self.z))

    @cached_property
    def distances(self) -> Floats:
        """Distances, shape (n, n)."""
        return np.asarray(squareform(self.condensed))

    @cached_property
    def neighbors(self) -> Labels:
        """Nearest other items, nearest first, shape (n, min(MAX_NEIGHBORS, n - 1))."""
        count = min(MAX_NEIGHBORS, len(self) - 1)
        d = self.distances + np.diag(np.full(len(self), np.inf))
        near = np.argpartition(d, count - 1, axis=1)[:, :count]
        order = np.take_along_axis(d, near, 1).argsort(1, kind="stable")
        return np.take_along_axis(near, order, 1)

    @cached_property
    def neighbor_distances(self) -> Floats:
        """Distances of `neighbors`, shape (n, min(MAX_NEIGHBORS, n - 1))."""
        return np.take_along_axis(self.distances, self.neighbors, 1)

    @cached_property
    def n_density(self) -> int:
        """Number of neighbours of the density estimate: about 1.2 sqrt(n) / 2, from 5 to 20."""
        return int(min(np.clip(round(0.6 * np.sqrt(len(self))), 5, 20), len(self) - 1))

    @cached_property
    def log_density(self) -> Floats:
        """Logarithm of the density to the power 1 / d, up to a constant, shape (n,).

        It is minus the logarithm of the mean distance to the nearest neighbours. Where rows are repeated, the
        neighbours' multiplicity adds to it.
        """
        near = self.neighbor_distances[:, : self.n_density].mean(1)
        floor = max(1e-3 * float(np.median(near)), 1e-9)
        repeated = self.weight[self.neighbors[:, : self.n_density]].mean(1)
        columns = min(self.z.shape[1], MAX_DENSITY_COLUMNS)
        return np.asarray(np.log(repeated) / columns - np.log(np.maximum(near, floor)))

    @cached_property
    def principal(self) -> Floats:
        """Leading components: those of more than average variance, two to eight of them, shape (n, q)."""
        variance = self.z.var(0)
        n_leading = int((variance > variance.sum() / len(variance)).sum())
        return self.z[:, : int(np.clip(n_leading, 2, 8))]
