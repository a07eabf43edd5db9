"""Similarity graphs as SciPy CSR matrices: sparse, symmetric, non-negative, without loops, in O(n k) memory."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from entourage.game.metric_search import DistinctSearch, Metric, MetricSearch, Search
from entourage.game.neighbors import Neighbors, NeighborSearch
from entourage.game.similarity import SCALE_NEIGHBOR, center_rows, check_bandwidth, normalize_rows
from entourage.validation import check_choice, is_integer

Affinity = Literal["self_tuning", "gaussian", "cosine", "pearson"]
Symmetry = Literal["max", "mean", "mutual"]
Negatives = Literal["error", "clamp", "shift"]

# Lower bound of edge weights: the exponential underflows for outliers near a dense cluster, which would lose all edges.
MIN_WEIGHT = 1e-30
# Smaller cosines are rounding errors: in the float32 search, those of right angles were at most half of this.
COSINE_ROUNDING = 8 * torch.finfo(torch.float32).eps
MANY_COPIES = 0.01  # fraction of points of which a quarter of the neighbours are copies


def default_n_neighbors(n: int) -> int:
    """Return k = min(floor(log2 n) + 1, n - 1), the rule of the original code."""
    return min(math.floor(math.log2(n)) + 1, n - 1) if n > 0 else 0


class NeighborGraph:
    """Nearest-neighbour graph of a set of points, with edges to new points.

    Args:
        points: shape (n, d), finite; the search runs on their device. With a metric, an array or a sparse CSR matrix,
            or with metric="precomputed" distances of shape (n, n).
        n_neighbors: number of neighbours of each point; "auto" for `default_n_neighbors(n)`, None for n - 1.
        affinity: weight of an edge. "self_tuning" and "gaussian" decrease with Euclidean distance; "cosine" and
            "pearson" compare directions, also in the search. Points without a direction (a zero or a constant row) have
            no edges.
        squared: use d^2 in the self-tuning kernel, as published, or d, as in the original code.
        bandwidth: bandwidth of the Gaussian; by default the root mean square distance to the seventh neighbour.
        negatives: treatment of negative cosines and correlations.
        symmetrize: how the two directions of an edge are combined: "max", "mean" or "mutual" (`symmetrize`).
        normalize: divide each weight by the square roots of both degrees, so that hubs do not dominate.
        recall: fraction of the true neighbours to find in large sets; see `NeighborSearch`.
        metric: "euclidean", "precomputed", a metric of scikit-learn's `pairwise_distances`, or a function of two rows.
            All but "euclidean" of dense points compare all pairs, and are for "self_tuning" and "gaussian".

    Attributes:
        w: the graph, shape (n, n), float32.

    Raises:
        ValueError: an option is unknown or out of range, or similarities are negative and `negatives` is "error".
    """

    def __init__(
        self,
        points: Any,
        n_neighbors: int | Literal["auto"] | None = "auto",
        *,
        affinity: Affinity = "self_tuning",
        squared: bool = True,
        bandwidth: float | None = None,
        negatives: Negatives = "error",
        symmetrize: Symmetry = "mean",
        normalize: bool = True,
        recall: float = 0.97,
        metric: Metric = "euclidean",
    ) -> None:
        check_choice("affinity", affinity, Affinity)
        _check_metric(metric, affinity, points)
        self.affinity = affinity
        self.squared = squared
        self.bandwidth = bandwidth
        self.negatives: Negatives = negatives
        self.symmetrize: Symmetry = symmetrize
        self.shift: float | None = None
        self.n_neighbors = _check_n_neighbors(n_neighbors, points.shape[0])
        directed, self.has_direction = self._directions(points)  # (p, d), (n,)
        k = min(self.n_neighbors, directed.shape[0])
        self.search: Search = (
            NeighborSearch(directed, k, recall) if isinstance(directed, Tensor) else MetricSearch(directed, k, metric)
        )
        neighbors = self.search.query_self()
        if _has_many_copies(neighbors.distance):
            self.search = DistinctSearch(self.search, k)
            neighbors = self.search.query_self()
        self.local_scale = _local_scale(neighbors.distance)  # (p,)
        w = self._symmetrized(self._csr(neighbors, self.local_scale, self.has_direction))
        self.degree = np.asarray(w.sum(axis=1), dtype=np.float64).ravel() if normalize else np.ones(w.shape[0])
        self.w = _divide_by_degrees(w, self.degree, self.degree)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Indices of all points, shape (n,), with most neighbours close to each other; None if no such order is known.

        Products with a graph in this order are faster, since they read memory that is in the cache.
        """
        found = self.search.order if isinstance(self.search, NeighborSearch) else None
        return None if found is None or len(found) != self.w.shape[0] else found.cpu().numpy()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "local_scale": self.local_scale.cpu(), "has_direction": self.has_direction.cpu()}

    def weights_to(self, queries: Any) -> sparse.csr_matrix:
        """Compute the similarities of new points to their k nearest points of the graph.

        The kernel uses the local scales and degrees of the points of the graph. A factor of each query is omitted,
        because it does not change the query's label.

        Args:
            queries: shape (q, d); distances of shape (q, n) with metric="precomputed".

        Returns:
            Similarities, shape (q, n), at most k per row.
        """
        directed, has_direction = self._directions(queries)
        neighbors = self.search.query(directed)
        w = self._csr(neighbors, _local_scale(neighbors.distance, self.local_scale), has_direction)
        return _divide_by_degrees(w, np.ones(queries.shape[0]), self.degree)

    def _symmetrized(self, w: sparse.csr_matrix) -> sparse.csr_matrix:
        return symmetrize(w, self.symmetrize)

    def _directions(self, points: Any) -> tuple[Any, Tensor]:
        """Return the rows to compare, shape (p, d), and the mask of the points that they belong to, shape (n,)."""
        if not isinstance(points, Tensor):
            nonzero = np.ones(points.shape[0], dtype=bool)
            if self.affinity == "cosine":  # sparse
                from sklearn.preprocessing import normalize as normalize_sparse_rows  # slow to import

                points = normalize_sparse_rows(points)
                nonzero = np.asarray(points.multiply(points).sum(axis=1)).ravel() > 0
            return points[nonzero], torch.from_numpy(nonzero)
        if self.affinity not in ("cosine", "pearson"):
            return points, torch.ones(len(points), dtype=torch.bool, device=points.device)
        directed = normalize_rows(center_rows(points) if self.affinity == "pearson" else points)
        has_direction = directed.any(dim=1)
        # Points at the origin are dropped: they would be nearer to each direction than most other directions are.
        return directed if bool(has_direction.all()) else directed[has_direction], has_direction

    def _csr(self, neighbors: Neighbors, scale: Tensor, has_direction: Tensor) -> sparse.csr_matrix:
        """Return the edges of the queries to their neighbours, shape (q, n); rows without a direction have none."""
        columns = neighbors.index  # (p, k), indices among the points with a direction
        if len(self.search) < len(self.has_direction):
            columns = self.has_direction.nonzero().flatten().to(columns.device)[columns]
        indptr = np.append(0, has_direction.cpu().numpy().cumsum()) * columns.shape[1]
        data = self._weights(neighbors, scale).float().cpu().numpy().ravel()
        w = sparse.csr_matrix(
            (data, columns.int().cpu().numpy().ravel(), indptr), shape=(len(has_direction), len(self.has_direction))
        )
        w.sort_indices()
        return w

    def _weights(self, neighbors: Neighbors, scale: Tensor) -> Tensor:
        """Return the weights of the edges to the neighbours, shape (q, k); `scale` of the queries has shape (q,)."""
        distance = neighbors.distance
        if self.affinity in ("cosine", "pearson"):
            similarity = 1 - distance.square() / 2
            similarity = similarity.masked_fill(similarity.abs() < COSINE_ROUNDING, 0)
            if self.shift is None or self.negatives == "error":
                self.shift = required_shift(similarity, self.negatives, self.affinity)
            return (similarity + self.shift).clamp_min(0)
        # Quotients first: the squares of very large or very small distances would leave the range of float32.
        if self.affinity == "gaussian":
            if self.bandwidth is None:
                typical = self.local_scale.mean()
                self.bandwidth = float(typical * (self.local_scale / typical).square().mean().sqrt())
            exponent = (distance / check_bandwidth(self.bandwidth)).square() / 2
        else:
            neighbor_scale = self.local_scale[neighbors.index]
            exponent = distance / scale[:, None] * (distance / neighbor_scale if self.squared else 1 / neighbor_scale)
        return torch.exp(-exponent).clamp_min(MIN_WEIGHT)


def _check_metric(metric: Metric, affinity: Affinity, points: Any) -> None:
    """Raise ValueError if the search for this kind of points has no such metric or affinity."""
    if isinstance(points, Tensor):
        if metric != "euclidean":
            raise ValueError(f"metric is {metric!r} for a tensor; expected 'euclidean', or an array")
    elif metric != "euclidean" and affinity not in ("self_tuning", "gaussian"):
        raise ValueError(f"affinity is {affinity!r} with a metric; expected 'self_tuning' or 'gaussian'")
    elif affinity == "pearson":
        raise ValueError("affinity is 'pearson' for sparse features; expected 'self_tuning', 'gaussian' or 'cosine'")


def required_shift(values: Tensor, negatives: Negatives, name: str = "the graph") -> float:
    """Return the constant to add to similarities before they are clamped at 0 (the two choices of chapter 4).

    Clamping adds 0, shifting subtracts the minimum. The similarities of new points are shifted by the constant of the
    graph, so that a prediction does not depend on the other points of the batch.

    Args:
        values: similarities, any shape.
        negatives: "error", "clamp" or "shift".
        name: name of the similarities, for the message.

    Returns:
        The constant, 0 or more.

    Raises:
        ValueError: there are negative similarities and `negatives` is "error".
    """
    check_choice("negatives", negatives, Negatives)
    negative = int((values < 0).sum())
    if negative and negatives == "error":
        raise ValueError(f"{name} has {negative} negative similarities; expected negatives='clamp' or 'shift'")
    return max(0.0, -float(values.min())) if negatives == "shift" and negative else 0.0


def symmetrize(w: sparse.csr_matrix, mode: Symmetry = "max") -> sparse.csr_matrix:
    """Combine the two directions of each edge into one weight.

    Args:
        w: similarities, shape (n, n); an absent entry is 0.
        mode: "max" keeps the larger weight, "mean" their mean, "mutual" the smaller.

    Returns:
        A symmetric matrix, shape (n, n), without explicit zeros.
    """
    check_choice("symmetrize", mode, Symmetry)
    transposed = w.T.tocsr()
    combined = sparse.csr_matrix(
        w.maximum(transposed) if mode == "max" else w + transposed if mode == "mean" else w.minimum(transposed)
    )
    if mode == "mean":
        combined.data /= 2  # in place: SciPy's division computes in float64
    combined.eliminate_zeros()
    return combined


def normalize_degrees(w: sparse.csr_matrix) -> sparse.csr_matrix:
    """Compute D^-1/2 W D^-1/2 with D the degrees of W.

    Args:
        w: similarities, shape (n, n).

    Returns:
        The normalised matrix, shape (n, n). Isolated nodes stay isolated.
    """
    degree = np.asarray(w.sum(axis=1), dtype=np.float64).ravel()
    return _divide_by_degrees(w, degree, degree)


def sparsify(
    w: NDArray[np.floating] | sparse.csr_matrix, n_neighbors: int | Literal["auto"] = "auto"
) -> sparse.csr_matrix:
    """Keep the k largest similarities of each row and drop the diagonal; the result is not symmetric.

    Args:
        w: similarities, shape (n, n), dense or sparse.
        n_neighbors: entries to keep per row; "auto" for `default_n_neighbors(n)`.

    Returns:
        A graph of at most n k entries. Costs O(n^2) time for a dense w, in blocks of rows; O(nnz log nnz) time and
        O(nnz) memory for a sparse one.
    """
    n = w.shape[0]
    n_kept = _check_n_neighbors(n_neighbors, n)
    if sparse.issparse(w):
        return _sparsify_stored(w, n_kept)
    rows: list[sparse.csr_matrix] = []
    for first in range(0, n, 1024):
        dense = np.array(w[first : first + 1024])
        np.fill_diagonal(dense[:, first:], 0)
        best = np.argpartition(-dense, n_kept - 1, axis=1)[:, :n_kept]
        values, indptr = np.take_along_axis(dense, best, axis=1), np.arange(len(dense) + 1) * n_kept
        rows.append(sparse.csr_matrix((values.ravel(), best.ravel(), indptr), (len(dense), n)))
    sparse_rows = sparse.csr_matrix(sparse.vstack(rows))
    sparse_rows.eliminate_zeros()
    sparse_rows.sort_indices()
    return sparse_rows


def _sparsify_stored(w: sparse.csr_matrix, n_neighbors: int) -> sparse.csr_matrix:
    """Sparsify a sparse matrix without a dense copy."""
    n = w.shape[0]
    stored = sparse.csr_matrix(w, copy=True)
    stored.sum_duplicates()
    entries = stored.tocoo()
    order = np.lexsort((-entries.data, entries.row))  # the largest of each row first
    order = order[entries.row[order] != entries.col[order]]
    row, column, data = entries.row[order], entries.col[order], entries.data[order]
    counts = np.bincount(row, minlength=n)  # (n,)
    rank = np.arange(len(row)) - (counts.cumsum() - counts)[row]
    rank += np.where(data < 0, n - counts[row], 0)  # implicit zeros rank before negative entries
    best = (rank < n_neighbors) & (data != 0)
    return sparse.csr_matrix((data[best], (row[best], column[best])), shape=w.shape)


def to_torch(w: sparse.csr_matrix, device: torch.device | str = "cpu") -> Tensor:
    """Return the graph as a torch CSR tensor, with 32-bit indices if they suffice: the dynamics is memory-bound."""
    index = np.int32 if max(*w.shape, w.nnz) < 2**31 else np.int64
    arrays = (w.indptr.astype(index, copy=False), w.indices.astype(index, copy=False), w.data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        crow, column, values = (torch.from_numpy(array).to(device) for array in arrays)
        return torch.sparse_csr_tensor(crow, column, values, size=w.shape, check_invariants=False)


def _check_n_neighbors(n_neighbors: int | Literal["auto"] | None, n: int) -> int:
    if n_neighbors == "auto":
        return default_n_neighbors(n)
    if n_neighbors is None:
        return n - 1
    if not (is_integer(n_neighbors) and n_neighbors >= 1):
        raise ValueError(f"n_neighbors is {n_neighbors!r}; expected a whole number of 1 or more, 'auto' or None")
    return min(int(n_neighbors), n - 1)


def _has_many_copies(distance: Tensor) -> bool:
    """Return whether copies determine a local scale, or are a quarter of the neighbours of one point in a hundred."""
    k = distance.shape[1]
    if k < 2:
        return k == 1 and bool((distance == 0).any())
    quarter, scale = (distance[:, min(column, k) - 1] == 0 for column in (max(2, k // 4), SCALE_NEIGHBOR))
    return bool(scale.any()) or float(quarter.float().mean()) > MANY_COPIES


def _local_scale(distance: Tensor, point_scales: Tensor | None = None) -> Tensor:
    """Return the distance to the seventh neighbour, shape (q,), always positive.

    Where it is 0, the farthest neighbour is used; where all neighbours are duplicates, the mean scale.
    """
    if distance.shape[1] == 0:
        return distance.new_ones(len(distance))
    scale = distance[:, min(SCALE_NEIGHBOR, distance.shape[1]) - 1]
    scale = torch.where(scale > 0, scale, distance[:, -1])
    positive = scale if point_scales is None else point_scales
    positive = positive[positive > 0]
    typical = positive.mean() if len(positive) else scale.new_ones(())
    return torch.where(scale > 0, scale, typical)


def _divide_by_degrees(
    w: sparse.csr_matrix, rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> sparse.csr_matrix:
    """Compute w_ij / sqrt(rows_i columns_j); zero degrees count as 1."""
    row, column = (1 / np.sqrt(np.where(d > 0, d, 1)) for d in (rows, columns))
    data = w.data * np.repeat(row, np.diff(w.indptr)).astype(np.float32)
    data *= column.astype(np.float32)[w.indices]
    return sparse.csr_matrix((data, w.indices, w.indptr), shape=w.shape)
