"""K-means where the embeddings are, on CPU or GPU: how well they fall into groups by themselves."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from entourage.checked import check_whole
from entourage.game.cells import nearest_centre, squared_to

DRAWS = 256  # rounds of seeding; with more clusters than this, several seeds are drawn at once
STARTS = 10  # as scikit-learn had it; a single one may end far from the best clusters
PRODUCTS = 2**32  # that all starts together may cost a round: a fraction of a second on a CPU
FEWEST = 32  # a round with fewer clusters costs no less: the points must be moved in any case
ROWS = 2**14  # points whose distances are summed at a time


def k_means(
    points: Tensor,
    k: int,
    *,
    seed: int = 0,
    starts: int | None = None,
    most_rounds: int = 300,
    tol: float = 1e-4,
) -> Tensor:
    """Lloyd's algorithm from seeds that lie far apart (k-means++), until the centres come to rest.

    It starts several times, and the tightest clusters are kept.

    Args:
        points: shape (n, d), finite, float32 or float64.
        k: number of clusters, 1 to n.
        seed: another one gives other seeds.
        starts: how often to start. When None, 10 times while n (k + 32) d is below 4e8 (6,000 points of 512 numbers in
            100 clusters, say), less often the more that is, and once from 2e9 on, where another start costs minutes.
        most_rounds: after these a start ends in any case.
        tol: it ends when all centres together move by less than this share of the variance.

    Returns:
        The cluster of each point, shape (n,). The same seed gives the same clusters on the same machine. Costs O(n k d)
        time a round of a start, in blocks, and memory for a second copy of the points.
    """
    check_whole(seed=seed)
    if not 1 <= k <= len(points):
        raise ValueError(f"{k} clusters were asked of {len(points)} points; expected 1 to {len(points)}")
    points = points - points.mean(dim=0)  # distances near 0 lose fewer digits
    tries = default_starts(len(points), k, points.shape[1]) if starts is None else starts
    if tries < 1:
        raise ValueError(f"starts is {tries}; expected 1 or more")
    generator = torch.Generator().manual_seed(seed)
    enough = float(tol * points.square().mean(dim=0).mean())  # as scikit-learn has it
    found = (_settle(points, _seeds(points, k, generator), most_rounds, enough) for _ in range(tries))
    return min(found, key=lambda clusters: clusters.inertia).home


def default_starts(n: int, k: int, d: int) -> int:
    """How often k-means starts if nobody says: 10 times, or as often as costs little, but once."""
    return max(1, min(STARTS, PRODUCTS // (n * (k + FEWEST) * max(d, 1))))


class _Clusters(NamedTuple):
    """The cluster of each point, shape (n,), and the sum of squared distances to their centres."""

    home: Tensor
    inertia: float


def _settle(points: Tensor, centres: Tensor, most_rounds: int, enough: float) -> _Clusters:
    """Moves the centres until all of them together move by no more than is enough."""
    for _ in range(most_rounds):
        home = nearest_centre(points, centres)  # (n,)
        moved = _means(points, home, centres)
        still = bool((moved - centres).square().sum() <= enough)
        centres = moved
        if still:
            break
    home = nearest_centre(points, centres)
    parts = zip(torch.split(points, ROWS), torch.split(home, ROWS), strict=True)  # a third copy is never held
    return _Clusters(home, sum(float((some - centres[own]).square().sum(dtype=torch.float64)) for some, own in parts))


def _seeds(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Seeds drawn with a chance that grows with the squared distance to those before, shape (k, d).

    Of several candidates the one that serves all points best is taken, as scikit-learn does: in many dimensions all
    points are about as far from each other, and chance alone would seed some groups twice and others not at all.
    """
    norms = points.square().sum(dim=1)  # (n,)
    chosen = torch.randint(len(points), (1,), generator=generator)
    far = _squared(points, norms, chosen)[:, 0]  # (n,), to the nearest seed
    while len(chosen) < k:
        wanted = min(-(-k // DRAWS), k - len(chosen))
        # Chance comes from the CPU's generator, so that it is the same everywhere. A point that was drawn, or its
        # double, has next to none: only where there are fewer different points than clusters.
        weights = far.double().cpu().clamp_min(1e-300)
        several = min(wanted + 1 + int(math.log(k)), len(points))
        candidates = torch.multinomial(weights, several, generator=generator)  # (several,)
        served = torch.minimum(_squared(points, norms, candidates), far[:, None])  # (n, several)
        best = served.sum(dim=0).topk(wanted, largest=False).indices  # (wanted,)
        chosen = torch.cat([chosen, candidates[best.cpu()]])
        far = served[:, best].amin(dim=1)
    return points[chosen.to(points.device)]


def _squared(points: Tensor, norms: Tensor, chosen: Tensor) -> Tensor:
    """Squared distance of every point to each of the chosen, shape (n, c)."""
    some = chosen.to(points.device)
    return squared_to(points, points[some], norms[some]).add_(norms[:, None]).clamp_min_(0)


def _means(points: Tensor, home: Tensor, centres: Tensor) -> Tensor:
    """The mean of each cluster, shape (k, d); one that lost its points starts anew where a point is worst served."""
    sizes = torch.bincount(home, minlength=len(centres))  # (k,)
    order = torch.argsort(home, stable=True)
    # Sums in a fixed order: adding in whichever order threads arrive would make each run a little different.
    sums = torch.segment_reduce(points[order], "sum", lengths=sizes)  # (k, d)
    means = sums / sizes.clamp_min(1)[:, None]
    empty = (sizes == 0).nonzero().flatten()  # (e,)
    if len(empty):
        served = (points - centres[home]).square().sum(dim=1)  # (n,)
        means[empty] = points[served.topk(len(empty)).indices]
    return means
