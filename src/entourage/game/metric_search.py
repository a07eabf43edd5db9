"""Exact nearest-neighbour search with any metric, for sparse features and given distances, and search among copies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from entourage.game.neighbors import BLOCK, Neighbors

Metric = Literal["euclidean", "precomputed"] | str | Callable[[NDArray[Any], NDArray[Any]], float]
# Euclidean distances of sparse rows are computed from products: below this fraction of the longest row, they are noise.
ROUNDING = 1e-7


class Search(Protocol):
    """Search for the nearest points of a set."""

    def __len__(self) -> int: ...

    def query_self(self) -> Neighbors:
        """Return the k nearest other points of every point."""
        ...

    def query(self, queries: Any) -> Neighbors:
        """Return the k nearest points of each query."""
        ...

    def group_copies(self) -> NDArray[np.int64]:
        """Return the index of the first point at distance 0 from each point, shape (n,)."""
        ...

    def select(self, indices: NDArray[np.int64], n_neighbors: int) -> Search:
        """Return a search among some of the points."""
        ...


class MetricSearch:
    """Exact search with any metric, one block of distances at a time: O(n^2) distances, O(n) memory.

    Args:
        points: features, shape (n, d), dense or sparse, or with metric="precomputed" the distances, shape (n, n).
        n_neighbors: number of neighbours, 0 to n.
        metric: "precomputed", a metric of scikit-learn's `pairwise_distances`, or a function of two rows that returns
            their distance, which is called n^2 times.

    Raises:
        ValueError: the metric is unknown, or given distances are negative or not square.
    """

    def __init__(self, points: Any, n_neighbors: int, metric: Metric) -> None:
        if metric == "precomputed":
            if sparse.issparse(points) or points.shape[0] != points.shape[1]:
                kind = "sparse" if sparse.issparse(points) else f"of shape {points.shape}"
                raise ValueError(f"X: the distances are {kind}; expected a dense square matrix")
            if points.size and points.min() < 0:
                raise ValueError(f"X: a distance is {points.min():.4g}; expected numbers of 0 or more")
        self.points, self.n_neighbors, self.metric = points, n_neighbors, metric
        inexact = metric == "euclidean" and sparse.issparse(points)
        self._rounding = ROUNDING * _longest_row(points) if inexact else 0.0

    def __len__(self) -> int:
        return int(self.points.shape[0])

    def query_self(self) -> Neighbors:
        """Return the k nearest other points of every point, or all n - 1 if there are fewer."""
        return self._nearest(self.points, min(self.n_neighbors, max(0, len(self) - 1)), exclude_self=True)

    def query(self, queries: Any) -> Neighbors:
        """Return the k nearest points of each query.

        Args:
            queries: features, shape (q, d), or with metric="precomputed" the distances to the points, shape (q, n).
        """
        return self._nearest(queries, self.n_neighbors, exclude_self=False)

    def group_copies(self) -> NDArray[np.int64]:
        """Return the index of the first point at distance 0 from each point, shape (n,)."""
        first = np.arange(len(self))
        for rows in self._blocks(len(self)):
            block = self._distances(self.points[rows])
            block[np.arange(len(block)), first[rows]] = 0  # a given matrix may have another diagonal
            first[rows] = (block == 0).argmax(axis=1)
        return first

    def select(self, indices: NDArray[np.int64], n_neighbors: int) -> Self:
        """Return a search among some of the points."""
        points = self.points[indices]
        return type(self)(points[:, indices] if self.metric == "precomputed" else points, n_neighbors, self.metric)

    def _nearest(self, queries: Any, k: int, *, exclude_self: bool) -> Neighbors:
        n = int(queries.shape[0])
        index, distance = np.empty((n, k), dtype=np.int64), np.empty((n, k), dtype=np.float64)
        for rows in self._blocks(n) if k else ():
            block = self._distances(queries[rows])  # (b, n)
            if exclude_self:
                block[np.arange(len(block)), np.arange(n)[rows]] = np.inf
            nearest = np.argpartition(block, k - 1, axis=1)[:, :k]
            values = np.take_along_axis(block, nearest, axis=1)
            order = np.argsort(values, axis=1, kind="stable")
            index[rows], distance[rows] = (np.take_along_axis(one, order, axis=1) for one in (nearest, values))
        return Neighbors(torch.from_numpy(index), torch.from_numpy(distance))

    def _blocks(self, n: int) -> list[slice]:
        size = max(1, BLOCK // max(1, len(self)))
        return [slice(first, first + size) for first in range(0, n, size)]

    def _distances(self, block: Any) -> NDArray[np.float64]:
        if self.metric == "precomputed":
            return np.array(block, dtype=np.float64)
        from sklearn.metrics import pairwise_distances  # slow to import

        found = np.asarray(pairwise_distances(block, self.points, metric=self.metric), dtype=np.float64)
        found[found < self._rounding] = 0
        return found


class DistinctSearch:
    """Search among points with many copies, whose neighbours would otherwise be copies only, or too many of them.

    A point is joined to the next of its copies, and otherwise to its nearest distinct points; the copies of these are
    used in turn. The copies of a point are therefore connected to each other and to the rest of the graph.

    Args:
        search: a search among all points.
        n_neighbors: number of neighbours k.
    """

    def __init__(self, search: Search, n_neighbors: int) -> None:
        first, group, sizes = np.unique(search.group_copies(), return_inverse=True, return_counts=True)
        self.first, self.group, self.sizes = first, group.astype(np.int64), sizes.astype(np.int64)
        self.n_neighbors = n_neighbors
        self.distinct = search.select(first, min(n_neighbors, len(first)))

    def __len__(self) -> int:
        return len(self.group)

    def query_self(self) -> Neighbors:
        """Return at most k neighbours of every point, shape (n, k): one copy, and the nearest distinct points."""
        order = np.argsort(self.group, kind="stable")
        starts = np.append(0, self.sizes.cumsum()[:-1])
        rank = np.empty(len(self), dtype=np.int64)
        rank[order] = np.arange(len(self)) - starts[self.group[order]]

        def copies(groups: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.asarray(order[starts[groups] + ranks % self.sizes[groups]])

        found = self.distinct.query_self()
        others = found.index.cpu().numpy()[self.group]  # (n, u), groups
        index = copies(others, np.repeat(rank[:, None], others.shape[1], axis=1))
        distance = found.distance.cpu().numpy()[self.group]
        own = copies(self.group, rank + 1)[:, None]  # (n, 1)
        # A point without copies has its nearest points, the last one twice if there are fewer than k.
        single = (self.sizes[self.group] == 1)[:, None] & (others.shape[1] > 0)
        width = min(self.n_neighbors, others.shape[1] + 1)
        index = _prepend(own, index, single)[:, :width]
        distance = _prepend(np.zeros_like(distance, shape=own.shape), distance, single)[:, :width]
        return Neighbors(
            torch.from_numpy(np.ascontiguousarray(index)).to(found.index.device),
            torch.from_numpy(np.ascontiguousarray(distance)).to(found.distance),
        )

    def query(self, queries: Any) -> Neighbors:
        """Return the k nearest distinct points of each query, each by its first copy."""
        if getattr(self.distinct, "metric", None) == "precomputed":
            queries = queries[:, self.first]
        found = self.distinct.query(queries)
        return Neighbors(torch.from_numpy(self.first).to(found.index.device)[found.index], found.distance)

    def group_copies(self) -> NDArray[np.int64]:
        """Return the index of the first copy of each point, shape (n,)."""
        return np.asarray(self.first[self.group])

    def select(self, indices: NDArray[np.int64], n_neighbors: int) -> Search:
        """Return a search among some of the distinct points."""
        return self.distinct.select(indices, n_neighbors)


def _prepend(own: NDArray[Any], others: NDArray[Any], single: NDArray[np.bool_]) -> NDArray[Any]:
    """Put `own` before each row of `others`, shape (n, u + 1); rows that are `single` repeat their last entry."""
    if not others.shape[1]:
        return own
    return np.where(single, np.concatenate([others, others[:, -1:]], 1), np.concatenate([own, others], 1))


def _longest_row(points: Any) -> float:
    return math.sqrt(points.power(2).sum(axis=1).max())
