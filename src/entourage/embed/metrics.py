"""K-means where the embeddings are, on CPU or GPU: how well they fall into groups by themselves.

How good embeddings are for retrieval and clustering: exact, in blocks, on CPU or GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from entourage.compute import resolve_device
from entourage.game.neighbors import nearest_center, squared_distances_to, topk_smallest
from entourage.game.similarity import normalize_rows
from entourage.validation import check_integers, class_codes, is_integer

SEEDING_ROUNDS = 256  # rounds of seeding; with more clusters than this, several seeds are drawn at once
MAX_N_INIT = 10  # as scikit-learn had it; a single one may end far from the best clusters
MAX_PRODUCTS = 2**32  # that all starts together may cost a round: a fraction of a second on a CPU
MIN_CLUSTER_COST = 32  # a round with fewer clusters costs no less: the points must be moved in any case
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
    """Lloyd's algorithm from seeds that lie far apart (k-means++), until the centres come to rest.

    It starts several times, and the tightest clusters are kept.

    Args:
        points: shape (n, d), finite, float32 or float64.
        n_clusters: number of clusters, 1 to n.
        seed: another one gives other seeds.
        n_init: number of starts. When None, 10 times while n (k + 32) d is below 4e8 (6,000 points of 512 numbers in
            100 clusters, say), less often the more that is, and once from 2e9 on, where another start costs minutes.
        max_iter: maximum number of rounds of a start.
        tol: it ends when all centres together move by less than this share of the variance.

    Returns:
        The cluster of each point, shape (n,). The same seed gives the same clusters on the same machine. Costs O(n k d)
        time a round of a start, in blocks, and memory for a second copy of the points.
    """
    check_integers(seed=seed)
    if not 1 <= n_clusters <= len(points):
        raise ValueError(f"n_clusters is {n_clusters}; expected 1 to {len(points)}, the number of points")
    points = points - points.mean(dim=0)  # distances near 0 lose fewer digits
    n_init = default_n_init(len(points), n_clusters, points.shape[1]) if n_init is None else n_init
    if n_init < 1:
        raise ValueError(f"n_init is {n_init}; expected 1 or more")
    generator = torch.Generator().manual_seed(seed)
    tolerance = float(tol * points.square().mean(dim=0).mean())  # as scikit-learn has it
    results = (
        _lloyd(points, _kmeans_plus_plus(points, n_clusters, generator), max_iter, tolerance) for _ in range(n_init)
    )
    return min(results, key=lambda clusters: clusters.inertia).labels


def default_n_init(n: int, k: int, d: int) -> int:
    """How often k-means starts if nobody says: 10 times, or as often as costs little, but once."""
    return max(1, min(MAX_N_INIT, MAX_PRODUCTS // (n * (k + MIN_CLUSTER_COST) * max(d, 1))))


class _Clusters(NamedTuple):
    """The cluster of each point, shape (n,), and the sum of squared distances to their centres."""

    labels: Tensor
    inertia: float


def _lloyd(points: Tensor, centers: Tensor, max_iter: int, tolerance: float) -> _Clusters:
    """Moves the centres until all of them together move by no more than is enough."""
    for _ in range(max_iter):
        assignment = nearest_center(points, centers)  # (n,)
        moved = _update_centers(points, assignment, centers)
        converged = bool((moved - centers).square().sum() <= tolerance)
        centers = moved
        if converged:
            break
    assignment = nearest_center(points, centers)
    parts = zip(
        torch.split(points, CHUNK_ROWS), torch.split(assignment, CHUNK_ROWS), strict=True
    )  # a third copy is never held
    return _Clusters(
        assignment, sum(float((chunk - centers[nearest]).square().sum(dtype=torch.float64)) for chunk, nearest in parts)
    )


def _kmeans_plus_plus(points: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Seeds drawn with a chance that grows with the squared distance to those before, shape (k, d).

    Of several candidates the one that serves all points best is taken, as scikit-learn does: in many dimensions all
    points are about as far from each other, and chance alone would seed some groups twice and others not at all.
    """
    norms = points.square().sum(dim=1)  # (n,)
    selected = torch.randint(len(points), (1,), generator=generator)
    nearest_distance = _squared(points, norms, selected)[:, 0]  # (n,), to the nearest seed
    while len(selected) < n_clusters:
        count = min(-(-n_clusters // SEEDING_ROUNDS), n_clusters - len(selected))
        # Chance comes from the CPU's generator, so that it is the same everywhere. A point that was drawn, or its
        # double, has next to none: only where there are fewer different points than clusters.
        weights = nearest_distance.double().cpu().clamp_min(1e-300)
        n_candidates = min(count + 1 + int(math.log(n_clusters)), len(points))
        candidates = torch.multinomial(weights, n_candidates, generator=generator)  # (n_candidates,)
        distances = torch.minimum(_squared(points, norms, candidates), nearest_distance[:, None])  # (n, n_candidates)
        best = distances.sum(dim=0).topk(count, largest=False).indices  # (count,)
        selected = torch.cat([selected, candidates[best.cpu()]])
        nearest_distance = distances[:, best].amin(dim=1)
    return points[selected.to(points.device)]


def _squared(points: Tensor, norms: Tensor, selected: Tensor) -> Tensor:
    """Squared distance of every point to each of the selected, shape (n, c)."""
    index = selected.to(points.device)
    return squared_distances_to(points, points[index], norms[index]).add_(norms[:, None]).clamp_min_(0)


def _update_centers(points: Tensor, assignment: Tensor, centers: Tensor) -> Tensor:
    """The mean of each cluster, shape (k, d); one that lost its points starts anew where a point is worst served."""
    sizes = torch.bincount(assignment, minlength=len(centers))  # (k,)
    order = torch.argsort(assignment, stable=True)
    # Sums in a fixed order: adding in whichever order threads arrive would make each run a little different.
    sums = torch.segment_reduce(points[order], "sum", lengths=sizes)  # (k, d)
    means = sums / sizes.clamp_min(1)[:, None]
    empty = (sizes == 0).nonzero().flatten()  # (e,)
    if len(empty):
        distances = (points - centers[assignment]).square().sum(dim=1)  # (n,)
        means[empty] = points[distances.topk(len(empty)).indices]
    return means


BLOCK_SIZE = 2**24  # similarities held at a time: 64 MB, whatever the number of embeddings


def retrieval_metrics(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    k: int | Sequence[int] = (1, 2, 4, 8),
    *,
    normalize: bool = True,
    nmi: bool = True,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """Every embedding looks for its like among all others; and all of them are clustered.

    Recall@K is the share of queries with one of their class among the K nearest (thesis, chapter 4, "Evaluation
    metrics"); R-precision the share of their class among the R nearest, R being how many others it has; MAP@R the mean
    precision at each of them that is found. NMI compares as many k-means clusters as there are classes with them: the
    tightest of several starts, see `k_means`.

    Nothing is approximated. A query whose class has no other member cannot be answered and is left out of the first
    three. Costs O(n^2 d) time and O(n d) memory besides a block: well under 2 GB for 60,000 embeddings of 512 numbers.

    Args:
        embeddings: shape (n, d).
        labels: shape (n,); anything that can be compared.
        k: the K of Recall@K, one or several.
        normalize: compare directions, as all of the field does; otherwise Euclidean distances between raw embeddings.
        nmi: whether to cluster, which costs O(n m d) time a round for m classes.
        seed: of k-means.
        device: where to compute; where the embeddings are when None.

    Returns:
        "recall@1" for each K, "r_precision", "map@r" and, if asked for, "nmi"; all from 0 to 1.

    Raises:
        ValueError: on shapes that do not fit, values that are no real numbers or not finite, labels that cannot be
            compared, fewer than two classes, no class of two, no K, or one that is not from 1 to n - 1, a seed that is
            no whole number, or a device that is not there.

    Example:
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
    k_values = _check_k(k, len(points))
    points = normalize_rows(points) if normalize else _scale_to_one(points)
    with _full_precision(points.device):
        metrics = _retrieval(points, codes, others, k_values)
        if nmi:
            clusters = k_means(points, int(codes.max()) + 1, seed=seed)
            metrics["nmi"] = _mutual_information(codes, clusters)
    return metrics


def _retrieval(points: Tensor, codes: Tensor, others: Tensor, k: Sequence[int]) -> dict[str, float]:
    """All metrics of retrieval; `others` is R of each query, shape (n,)."""
    # From their common middle, so that float32 can tell apart even embeddings that have all but collapsed.
    points = points - points.mean(dim=0)
    sums = _RetrievalSums(k)
    norms = points.square().sum(dim=1)  # (n,)
    max_rank = max(*k, int(others.max()))
    for rows in torch.split(torch.arange(len(points), device=points.device), max(1, BLOCK_SIZE // len(points))):
        ranking = squared_distances_to(points[rows], points, norms)  # (b, n)
        ranking.scatter_(1, rows[:, None], torch.inf)  # nobody finds himself
        neighbors = topk_smallest(ranking, max_rank)  # (b, max_rank), unordered
        neighbors = neighbors.gather(1, ranking.gather(1, neighbors).argsort(dim=1, stable=True))  # nearest first
        sums.add(codes[neighbors] == codes[rows, None], others[rows])
    return sums.means()


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Products in all digits of float32, also where a training rounds them to fewer (TF32, autocast)."""
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
    """Sums over queries."""

    def __init__(self, k: Sequence[int]) -> None:
        self.k = k
        self.sums = {name: _Sum() for name in (*(f"recall@{at}" for at in k), "r_precision", "map@r")}

    def add(self, hits: Tensor, others: Tensor) -> None:
        """Counts a block of queries.

        Args:
            hits: whether each neighbour is of the query's class, nearest first, shape (b, max_rank).
            others: how many others of its class there are, shape (b,).
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

    def means(self) -> dict[str, float]:
        """Over all queries that can be answered."""
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
    except ValueError as error:  # NumPy's own is of inhomogeneous shapes and detected dimensions
        raise ValueError(f"{name} hold lists of unequal length; expected {expected}") from error


def _from_array(array: NDArray[Any]) -> Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError as error:  # names, objects
        raise ValueError(f"embeddings have type {array.dtype}; expected real numbers") from error


def _codes(labels: Tensor | ArrayLike, n: int) -> Tensor:
    names = (
        labels.cpu().numpy() if isinstance(labels, Tensor) else _array(labels, "labels", f"({n},), one an embedding")
    )
    if names.shape != (n,):
        raise ValueError(f"labels have shape {names.shape}; expected ({n},), one an embedding")
    return torch.from_numpy(class_codes(names))


def _scale_to_one(points: Tensor) -> Tensor:
    """All points times one power of two, same shape: no square overflows or underflows, and no digit is lost."""
    exponent = math.frexp(float(points.abs().max()))[1]
    half = exponent // 2  # in two steps: no type can hold the inverse of its own smallest number
    return points * 2.0**-half * 2.0 ** (half - exponent)


def _check_k(k: int | Sequence[int], n: int) -> list[int]:
    """The K of Recall@K, rising, each once."""
    values: list[object] = list(k) if isinstance(k, Iterable) else [k]
    if not values:
        raise ValueError(f"k is empty; expected whole numbers from 1 to {n - 1}")
    checked = set()
    for at in values:
        if not is_integer(at) or not 1 <= at <= n - 1:
            expected = f"expected whole numbers from 1 to {n - 1}, the others that {n} embeddings have"
            raise ValueError(f"k holds {at}; {expected}")
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
        raise ValueError(f"all {n} labels are the same; expected two or more classes, or every answer would be right")
    if int(others.max()) == 0:
        raise ValueError(f"none of {n} labels comes twice; expected a class with two or more members")
