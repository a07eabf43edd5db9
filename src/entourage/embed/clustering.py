"""K-means where the embeddings are, on CPU or GPU: how well they fall into groups by themselves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from entourage.game import nearest_centre, squared_to

DRAWS = 256  # rounds of seeding; with more clusters than this, several seeds are drawn at once


def k_means(points: Tensor, k: int, *, seed: int = 0, most_rounds: int = 300, tol: float = 1e-4) -> Tensor:
    """Lloyd's algorithm from seeds that lie far apart (k-means++), until the centres come to rest.

    Args:
        points: shape (n, d), finite, float32 or float64.
        k: number of clusters, 1 to n.
        seed: another one gives other seeds.
        most_rounds: after these it ends in any case.
        tol: it ends when all centres together move by less than this share of the variance.

    Returns:
        The cluster of each point, shape (n,). The same seed gives the same clusters on the same machine. Costs O(n k d)
        time a round, in blocks, and memory for a second copy of the points.
    """
    if not 1 <= k <= len(points):
        raise ValueError(f"{k} clusters were asked of {len(points)} points; expected 1 to {len(points)}")
    points = points - points.mean(dim=0)  # distances near 0 lose fewer digits
    enough = tol * points.square().mean(dim=0).mean()  # as scikit-learn has it
    centres = _seeds(points, k, seed)
    for _ in range(most_rounds):
        home = nearest_centre(points, centres)  # (n,)
        moved = _means(points, home, centres)
        still = bool((moved - centres).square().sum() <= enough)
        centres = moved
        if still:
            break
    return nearest_centre(points, centres)


def _seeds(points: Tensor, k: int, seed: int) -> Tensor:
    """Seeds drawn with a chance that grows with the squared distance to those before, shape (k, d).

    Of several candidates the one that serves all points best is taken, as scikit-learn does: in many dimensions all
    points are about as far from each other, and chance alone would seed some groups twice and others not at all.
    """
    generator = torch.Generator().manual_seed(seed)
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
