"""Retrieval metrics and k-means clustering of embeddings: exact, computed in blocks, on CPU or GPU."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from entourage.compute import resolve_device
from entourage.embed.ties import TiedRanking
from entourage.game.neighbors import nearest_center, squared_distances_to, topk_smallest
from entourage.game.similarity import normalize_rows
from entourage.validation import check_integers, class_codes, is_integer

SEEDING_ROUNDS = 256  # rounds of seeding; with more clusters than this, a round draws several seeds
MAX_N_INIT = 10  # scikit-learn's default before 1.4; a single start may end far from the optimum
MAX_PRODUCTS = 2**32  # multiplications per iteration, over all starts: a fraction of a second on a CPU
MIN_CLUSTER_COST = 32  # an iteration with fewer clusters is not cheaper: reading the points dominates
CHUNK_ROWS = 2**14  # points whose distances are summed at a time


def k_means(
    points: Tensor,
    n_clusters: int,
    *,
    seed: int = 0,
    n_init: int | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> Tensor:
    """Cluster points by Lloyd's algorithm with k-means++ initialisation; the best of several starts is returned.

    Args:
        points: shape (n, d), finite, float32 or float64.
        n_clusters: number of clusters, 1 to n.
        seed: random seed of the initial centres.
        n_init: number of starts; None: 10 for up to about 6,000 points of 512 dimensions in 100 clusters, fewer for
            more data, and a single one if a further start would take minutes; see `default_n_init`.
        max_iter: maximum number of iterations of a start.
        tol: tolerance. A start ends when the squared movements of all centres sum to no more than this fraction of the
            mean variance of a dimension.

    Returns:
        The cluster of each point, shape (n,), equal for equal seeds on the same machine. Costs O(n k d) time per
        iteration of a start, in blocks, and memory for a second copy of the points.

    Raises:
        ValueError: `n_clusters` or `n_init` is out of range, or the seed is not an integer.
    """
    check_integers(seed=seed)
    if not 1 <= n_clusters <= len(points):
        raise ValueError(f"n_clusters is {n_clusters}; expected 1 to {len(points)}, the number of points")
    points = points - points.mean(dim=0)  # rounding errors of distances are smaller near the origin
    n_init = default_n_init(len(points), n_clusters, points.shape[1]) if n_init is None else n_init
    if n_init < 1:
        raise ValueError(f"n_init is {n_init}; expected 1 or more")
    generator = torch.Generator().manual_seed(seed)
    tolerance = float(tol * points.square().mean(dim=0).mean())  # scikit-learn's definition
    results = (
        _lloyd(points, _kmeans_plus_plus(points, n_clusters, generator), max_iter, tolerance) for _ in range(n_init)
    )
    return min(results, key=lambda clusters: clusters.inertia).labels


def default_n_init(n: int, k: int, d: int) -> int:
    """Return the default number of starts: 10 if n (k + 32) d is below 4e8, fewer above, and 1 from 2e9 on."""
    return max(1, min(MAX_N_INIT, MAX_PRODUCTS // (n * (k + MIN_CLUSTER_COST) * max(d, 1))))


class _Clusters(NamedTuple):
    """The cluster of each point, shape (n,), and the sum of squared distances to their centres."""

    labels: Tensor
    inertia: float


def _lloyd(points: Tensor, centers: Tensor, max_iter: int, tolerance: float) -> _Clusters:
    """Run Lloyd's algorithm until the squared movements of the centres sum to `tolerance` or less."""
    for _ in range(max_iter):
        assignment = nearest_center(points, centers)  # (n,)
        moved = _update_centers(points, assignment, centers)
        converged = bool((moved - centers).square().sum() <= tolerance)
        centers = moved
        if converged:
            break
    assignment = nearest_center(points, centers)
    # In chunks, to avoid another copy of the points.
    parts = zip(torch.split(points, CHUNK_ROWS), torch.split(assignment, CHUNK_ROWS), strict=True)
    inertia = sum(float((chunk - centers[nearest]).square().sum(dtype=torch.float64)) for chunk, nearest in parts)
    return _Clusters(assignment, inertia)


def _kmeans_plus_plus(points: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Draw initial centres by greedy k-means++, shape (k, d).

    Candidates are drawn with a probability proportional to the squared distance to the nearest previous centre. As in
    scikit-learn, the candidate that reduces the inertia most is selected: in many dimensions all distances are similar,
    so that a single draw would often place two centres in one cluster and none in another.
    """
    norms = points.square().sum(dim=1)  # (n,)
    selected = torch.randint(len(points), (1,), generator=generator)
    nearest_distance = _squared(points, norms, selected)[:, 0]  # (n,), to the nearest seed
    while len(selected) < n_clusters:
        count = min(-(-n_clusters // SEEDING_ROUNDS), n_clusters - len(selected))
        # Draws use a CPU generator and are therefore equal on all devices. Selected points and their duplicates have a
        # tiny weight: they are drawn again only if there are fewer distinct points than clusters.
        weights = nearest_distance.double().cpu().clamp_min(1e-300)
        n_candidates = min(count + 1 + int(math.log(n_clusters)), len(points))
        candidates = torch.multinomial(weights, n_candidates, generator=generator)  # (n_candidates,)
        distances = torch.minimum(_squared(points, norms, candidates), nearest_distance[:, None])  # (n, n_candidates)
        best = distances.sum(dim=0).topk(count, largest=False).indices  # (count,)
        selected = torch.cat([selected, candidates[best.cpu()]])
        nearest_distance = distances[:, best].amin(dim=1)
    return points[selected.to(points.device)]


def _squared(points: Tensor, norms: Tensor, selected: Tensor) -> Tensor:
    """Compute the squared distances of all n points to the c selected ones, shape (n, c)."""
    index = selected.to(points.device)
    return squared_distances_to(points, points[index], norms[index]).add_(norms[:, None]).clamp_min_(0)


def _update_centers(points: Tensor, assignment: Tensor, centers: Tensor) -> Tensor:
    """Compute the means of the clusters, shape (k, d); an empty cluster moves to the point farthest from its centre."""
    sizes = torch.bincount(assignment, minlength=len(centers))  # (k,)
    order = torch.argsort(assignment, stable=True)
    # The order of summation is fixed: atomic additions would make results differ between runs.
    sums = torch.segment_reduce(points[order], "sum", lengths=sizes)  # (k, d)
    means = sums / sizes.clamp_min(1)[:, None]
    empty = (sizes == 0).nonzero().flatten()  # (e,)
    if len(empty):
        distances = (points - centers[assignment]).square().sum(dim=1)  # (n,)
        means[empty] = points[distances.topk(len(empty)).indices]
    return means


DEFAULT_K = (1, 2, 4, 8)
BLOCK_SIZE = 2**24  # distances in memory at a time: 64 MB, independent of the number of embeddings


def retrieval_metrics(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    k: int | Sequence[int] | None = None,
    *,
    normalize: bool = True,
    nmi: bool = True,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """Compute retrieval and clustering metrics, with each embedding as a query among all others.

    Recall@K is the fraction of queries with a sample of their class among the K nearest (thesis, chapter 4, "Evaluation
    metrics"). R-precision is the fraction of samples of the query's class among the R nearest, where R is the number of
    other samples of the class. MAP@R is the mean, over these R ranks, of the precision at each rank that holds a sample
    of the class, and 0 at the others. NMI compares the classes with as many k-means clusters, see `k_means`.

    All metrics are exact. Where neighbours have equal distances, a query scores the expectation over all orders of
    them, so that collapsed embeddings score as random ones do. Queries whose class has no other sample are excluded
    from the retrieval metrics. Costs O(n^2 d) time and O(n d) memory in addition to a block: well below 2 GB for 60,000
    embeddings of 512 dimensions.

    Args:
        embeddings: shape (n, d).
        labels: the class of each sample, shape (n,), of any type that can be sorted.
        k: the K of Recall@K, one or several integers; None: those of 1, 2, 4 and 8 that are less than n.
        normalize: whether to scale embeddings to length 1, as is standard in metric learning; otherwise Euclidean
            distances of raw embeddings are used.
        nmi: whether to compute the NMI, which costs O(n m d) time per iteration of k-means for m classes.
        seed: random seed of k-means.
        device: device to compute on; None: that of the embeddings.

    Returns:
        "recall@K" for each K, "r_precision", "map@r" and, if requested, "nmi", all from 0 to 1.

    Raises:
        ValueError: shapes do not match; embeddings are not real or not finite; labels cannot be sorted; there are fewer
            than two classes or no class of two samples; a K is not an integer from 1 to n - 1; the seed is not an
            integer; or the device is not available.

    Examples:
        >>> from entourage import retrieval_metrics
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> retrieval_metrics(embeddings, ["cat", "cat", "dog", "dog"], k=1, nmi=False)
        {'recall@1': 1.0, 'r_precision': 1.0, 'map@r': 1.0}
    """
    check_integers(seed=seed)
    points = _points(embeddings, device)  # (n, d)
    codes = _codes(labels, len(points)).to(points.device)  # (n,)
    others = torch.bincount(codes)[codes] - 1  # (n,), R of each query
    _check(points, codes, others)
    k_values = _check_k(DEFAULT_K[: bisect(DEFAULT_K, len(points) - 1)] if k is None else k, len(points))
    points = normalize_rows(points) if normalize else _scale_to_one(points)
    with _full_precision(points.device):
        metrics = _retrieval(points, codes, others, k_values)
        if nmi:
            clusters = k_means(points, int(codes.max()) + 1, seed=seed)
            metrics["nmi"] = _mutual_information(codes, clusters)
    return metrics


def _retrieval(points: Tensor, codes: Tensor, others: Tensor, k: Sequence[int]) -> dict[str, float]:
    """Compute the retrieval metrics; `others` is R of each query, shape (n,)."""
    points = points - points.mean(dim=0)  # otherwise float32 cannot resolve the distances of nearly equal embeddings
    sums = _RetrievalSums(k)
    norms = points.square().sum(dim=1)  # (n,)
    max_rank = max(*k, int(others.max()))
    for rows in torch.split(torch.arange(len(points), device=points.device), max(1, BLOCK_SIZE // len(points))):
        ranking = squared_distances_to(points[rows], points, norms)  # (b, n)
        ranking.scatter_(1, rows[:, None], torch.inf)  # a query is not its own neighbour
        neighbors = topk_smallest(ranking, min(max_rank + 1, len(points)))  # (b, max_rank + 1), unordered
        distances, order = ranking.gather(1, neighbors).sort(dim=1, stable=True)  # nearest first
        neighbors, last = neighbors.gather(1, order)[:, :max_rank], distances[:, max_rank - 1, None]
        hits = codes[neighbors] == codes[rows, None]
        tied = (distances[:, 1:] == distances[:, :-1]).any(dim=1)
        sums.add(hits[~tied], others[rows[~tied]])
        if tied.any():
            at_last = ranking[tied] == last[tied]  # (t, n), also those beyond the last rank
            own = codes[None, :] == codes[rows[tied], None]
            groups = TiedRanking(distances[tied, :max_rank], hits[tied], at_last.sum(dim=1), (at_last & own).sum(dim=1))
            sums.add_expected(groups, others[rows[tied]])
    return sums.means()


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Disable TF32 and autocast within the block, so that products have the full precision of float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass
class _Sum:
    total: float = 0.0
    count: int = 0

    def add(self, values: Tensor) -> None:
        self.total += float(values.sum(dtype=torch.float64))
        self.count += len(values)


class _RetrievalSums:
    """Running sums of the retrieval metrics over blocks of queries."""

    def __init__(self, k: Sequence[int]) -> None:
        self.k = k
        self.sums = {name: _Sum() for name in (*(f"recall@{at}" for at in k), "r_precision", "map@r")}

    def add(self, hits: Tensor, others: Tensor) -> None:
        """Add a block of queries.

        Args:
            hits: whether each neighbour is of the query's class, nearest first, shape (b, max_rank).
            others: number of other samples of the query's class, shape (b,).
        """
        has_match = others > 0
        hits, others = hits[has_match], others[has_match, None]
        for at in self.k:
            self.sums[f"recall@{at}"].add(hits[:, :at].any(dim=1))
        rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)  # (max_rank,)
        within_r = hits & (rank <= others)  # (b, max_rank), the first R of each query
        self.sums["r_precision"].add(within_r.sum(dim=1).double() / others[:, 0])
        precision = within_r.cumsum(dim=1).double() / rank  # (b, max_rank)
        self.sums["map@r"].add((precision * within_r).sum(dim=1) / others[:, 0])

    def add_expected(self, ranking: TiedRanking, others: Tensor) -> None:
        """Add the expectations of a block of queries whose neighbours have equal distances; `others` as in `add`."""
        has_match = others > 0
        ranking, others = ranking.select(has_match), others[has_match]
        for at in self.k:
            self.sums[f"recall@{at}"].add(ranking.recall(at))
        self.sums["r_precision"].add(ranking.r_precision(others))
        self.sums["map@r"].add(ranking.average_precision(others))

    def means(self) -> dict[str, float]:
        """Return the means over all queries with another sample of their class."""
        return {name: one.total / one.count for name, one in self.sums.items()}


def _points(embeddings: Tensor | ArrayLike, device: str | torch.device | None) -> Tensor:
    points = (
        embeddings
        if isinstance(embeddings, Tensor)
        else _from_array(np.ascontiguousarray(_array(embeddings, "embeddings", "(samples, dimensions)")))
    )
    if points.is_complex():
        raise ValueError(f"embeddings have type {points.dtype}; expected real numbers")
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"embeddings have shape {tuple(points.shape)}; expected (samples, dimensions)")
    device = points.device if device is None else resolve_device(device)
    return points.detach().to(device, torch.promote_types(points.dtype, torch.float32))


def _array(values: ArrayLike, name: str, expected: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # NumPy's message mentions inhomogeneous shapes and detected dimensions
        raise ValueError(f"{name} hold lists of unequal length; expected {expected}") from error


def _from_array(array: NDArray[Any]) -> Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError as error:  # arrays of strings or objects
        raise ValueError(f"embeddings have type {array.dtype}; expected real numbers") from error


def _codes(labels: Tensor | ArrayLike, n: int) -> Tensor:
    names = (
        labels.cpu().numpy() if isinstance(labels, Tensor) else _array(labels, "labels", f"({n},), one per embedding")
    )
    if names.shape != (n,):
        raise ValueError(f"labels have shape {names.shape}; expected ({n},), one per embedding")
    return torch.from_numpy(class_codes(names))


def _scale_to_one(points: Tensor) -> Tensor:
    """Multiply all points by one power of two, which is exact, so that no square overflows or underflows."""
    exponent = math.frexp(float(points.abs().max()))[1]
    half = exponent // 2  # in two steps: the inverse of the smallest number of a type is out of its range
    return points * 2.0**-half * 2.0 ** (half - exponent)


def _check_k(k: int | Sequence[int], n: int) -> list[int]:
    """Return the distinct K of Recall@K, ascending."""
    values: list[object] = list(k) if isinstance(k, Iterable) else [k]
    if not values:
        raise ValueError(f"k is empty; expected whole numbers from 1 to {n - 1}")
    checked = set()
    for at in values:
        if not is_integer(at) or not 1 <= at <= n - 1:
            expected = f"expected whole numbers from 1 to {n - 1}, as there are {n} embeddings"
            raise ValueError(f"k contains {at}; {expected}")
        checked.add(int(at))
    return sorted(checked)


def _mutual_information(codes: Tensor, clusters: Tensor) -> float:
    from sklearn.metrics import normalized_mutual_info_score  # takes a second to import

    return float(normalized_mutual_info_score(codes.cpu().numpy(), clusters.cpu().numpy()))


def _check(points: Tensor, codes: Tensor, others: Tensor) -> None:
    n = len(points)
    if not bool(points.isfinite().all()):
        raise ValueError("embeddings have values that are not finite; expected finite numbers (has training diverged?)")
    if n == 0 or int(codes.max()) == 0:
        raise ValueError(f"labels: all {n} are equal; expected two or more classes")
    if int(others.max()) == 0:
        raise ValueError(f"labels: all {n} are different; expected a class with two or more samples")
