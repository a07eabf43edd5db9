"""Generated sets of 2D points with clusters of various shapes and sizes, as in appendix A.

Cluster sizes are equal, or Dirichlet-multinomial with a random concentration: a network trained only on clusters of
equal size splits large clusters and joins small ones. Entire batches are drawn at once, on any device.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from entourage.cluster.sampling.episodes import Episode, shuffled
from entourage.cluster.sampling.shapes import GAUSSIANS, KINDS, MAX_GROUP_CLUSTERS, draw_boxes, draw_shapes

MIN_CLUSTER_POINTS = 5  # fewer points are outliers, not a cluster
DEGREES_OF_FREEDOM = (1, 2, 4)  # twice the Dirichlet concentrations, one of which is drawn for each set


def draw_sizes(
    k: Tensor, n: int, max_clusters: int, fraction: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw unequal cluster sizes, and the sets that have them.

    Each cluster has `MIN_CLUSTER_POINTS` points, or n // k if that is less. The other points are distributed at random
    with chi-squared weights of the clusters, whose degrees of freedom are one of `DEGREES_OF_FREEDOM`.

    Args:
        k: number of clusters of each set, shape (b,).
        n: points per set.
        max_clusters: maximum number of clusters, k_max.
        fraction: fraction of the sets with unequal clusters.
        generator: random generator, on the device of k.

    Returns:
        Sizes, shape (b, k_max), with sum n and 0 beyond the last cluster; and a mask of the sets with these sizes,
        shape (b, 1).
    """
    b, device = len(k), k.device
    is_unequal = torch.rand(b, 1, generator=generator, device=device) < fraction
    degrees = torch.tensor(DEGREES_OF_FREEDOM, device=device)
    degrees = degrees[torch.randint(len(DEGREES_OF_FREEDOM), (b, 1, 1), generator=generator, device=device)]
    squares = torch.randn(b, max_clusters, max(DEGREES_OF_FREEDOM), generator=generator, device=device).square()
    exists = torch.arange(max_clusters, device=device) < k.unsqueeze(-1)  # (b, k_max)
    weights = (squares * (torch.arange(max(DEGREES_OF_FREEDOM), device=device) < degrees)).sum(-1) * exists
    ends = weights.cumsum(1)  # (b, k_max)
    min_points = (n // k).clamp(max=MIN_CLUSTER_POINTS).unsqueeze(-1)  # (b, 1)
    random = torch.rand(b, n, generator=generator, device=device) * ends[:, -1:]
    random = torch.minimum(torch.searchsorted(ends, random, right=True), k.unsqueeze(-1) - 1)  # (b, n), clusters
    position = torch.arange(n, device=device)
    free = (position >= min_points * k.unsqueeze(-1)).long()  # (b, n), 1 for points beyond the minimum sizes
    return (min_points * exists).scatter_add(1, random, free), is_unequal


def expected_unequal_pairs(k: int, n: int) -> float:
    """Return k E[s (s - 1)], the expected ordered pairs of points in one cluster, for sizes of `draw_sizes`."""
    min_points = min(MIN_CLUSTER_POINTS, n // k)
    free = n - min_points * k
    mean = min_points + free / k
    binomial = free * (1 / k) * (1 - 1 / k)
    # Variance of a Dirichlet-multinomial size, relative to the binomial variance
    spread = [(free + k * degrees / 2) / (1 + k * degrees / 2) for degrees in DEGREES_OF_FREEDOM]
    return k * (binomial * sum(spread) / len(spread) + mean**2 - mean)


REFERENCE_CLUSTER_SIZE = 14  # points per cluster in the appendix' sets with the most clusters, 72 // 5
MAX_NOISE = 3.0  # relative to the noise of the appendix
STRETCHED_FRACTION = 0.5  # fraction of the varied sets that are stretched along a random direction...
MAX_STRETCH = 6.0  # ...by up to this factor
# Fractions of sets that resemble users' data; the others are those of the appendix, which must be learned as well.
VARIED_FRACTION = 0.4  # varied sets in the training of the default network
UNEQUAL_FRACTION = 0.3  # sets with clusters of unequal size, if any sets are varied
# Minimum cluster size of each of KINDS that is recognisable next to larger clusters
MIN_POINTS_UNEQUAL = (12, 12, 12, 12, 1, 10, 10)


class PointSampler:
    """Sampler of generated sets of 2D points.

    Draws k uniformly, and groups of clusters of random kinds in cells of a random grid (appendix A). Clusters have
    about equal size, or unequal sizes in a fraction of the sets.

    Args:
        k_max: maximum number of clusters in a set.
        k_min: minimum number of clusters in a set.
        kinds: indices in `shapes.KINDS` of the kinds of groups; a single Gaussian must be among them, as the only kind
            that is possible for any number of clusters and points.
        varied: fraction of sets that vary more than those of the appendix: noise of curves increases with their number
            of points, Gaussians differ in width, some are uniform squares, and half of these sets are stretched along
            a random direction. The default network is trained with `VARIED_FRACTION`.
        unequal: fraction of sets with clusters of unequal size; None for `UNEQUAL_FRACTION` if `varied` is above 0,
            else 0.

    Attributes:
        shape: shape of one item, (2,).

    Raises:
        ValueError: an argument is out of range.
    """

    shape: tuple[int, ...] = (2,)

    def __init__(
        self,
        k_max: int = 5,
        *,
        k_min: int = 1,
        kinds: tuple[int, ...] = tuple(range(len(KINDS))),
        varied: float = 0.0,
        unequal: float | None = None,
    ) -> None:
        if not 1 <= k_min <= k_max:
            raise ValueError(f"k_min, k_max are {k_min}, {k_max}; expected 1 <= k_min <= k_max")
        if GAUSSIANS[0] not in kinds or not set(kinds) <= set(range(len(KINDS))):
            raise ValueError(
                f"kinds is {kinds}; expected indices of KINDS, with {GAUSSIANS[0]} (one Gaussian) among them"
            )
        if not 0 <= varied <= 1:
            raise ValueError(f"varied is {varied}; expected a fraction, from 0 to 1")
        if unequal is not None and not 0 <= unequal <= 1:
            raise ValueError(f"unequal is {unequal}; expected a fraction, from 0 to 1, or None")
        self.k_max = k_max
        self.k_min = k_min
        self.kinds = tuple(kinds)
        self.varied = varied
        self.unequal = unequal if unequal is not None else UNEQUAL_FRACTION if varied else 0.0

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draw sets of points on the device of the generator.

        Args:
            sets: number of sets, b.
            n: points per set.
            generator: random generator.
            k_max: maximum number of clusters; None for the sampler's.

        Returns:
            The sets and their clusters, in random order of the points.

        Raises:
            ValueError: n is less than k_max, or k_max is out of the sampler's range.
        """
        max_clusters = self._check_k_max(k_max)
        if n < max(2, max_clusters):
            raise ValueError(f"n is {n}; expected at least {max(2, max_clusters)} points for {max_clusters} clusters")
        device = generator.device
        k = torch.randint(self.k_min, max_clusters + 1, (sets,), generator=generator, device=device)
        sizes, is_unequal = draw_sizes(k, n, max_clusters, self.unequal, generator) if self.unequal else (None, None)
        kind = self._draw_kinds(k, _allowed_kinds(k, n, max_clusters, sizes, is_unequal), generator)  # (b, g)
        group, role, label = _assign_equally(kind, k, n, generator)
        cluster_size = n / k  # (b,)
        if sizes is not None and is_unequal is not None:
            by_size = _assign_by_size(kind, sizes, n)
            group, role, label = (
                torch.where(is_unequal, a, b) for a, b in zip(by_size, (group, role, label), strict=True)
            )
            cluster_size = torch.where(is_unequal.squeeze(1), _smallest_curve(kind, group, label, sizes), cluster_size)
        varies = torch.rand(sets, generator=generator, device=device) < self.varied if self.varied else None  # (b,)
        noise = (
            None
            if varies is None
            else (cluster_size / REFERENCE_CLUSTER_SIZE).sqrt().clamp(1, MAX_NOISE).where(varies, 1.0)
        )
        local = draw_shapes(kind, group, role, generator, noise, varies)  # (b, n, 2)
        corner, size = draw_boxes((kind >= 0).sum(1), max_clusters, generator)
        index = group.unsqueeze(-1).expand(-1, -1, 2)
        points = corner.gather(1, index) + local * size.gather(1, index)
        if varies is not None:
            points = _stretch_sets(points, varies, generator)
        return shuffled(Episode.of_labels(points, label), generator)

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """Return phi, the probability that two points of a set share a cluster, exactly, over all k."""
        counts = range(self.k_min, self._check_k_max(k_max) + 1)
        equal = sum(_expected_pairs(k, n, self.kinds) for k in counts)
        unequal = sum(expected_unequal_pairs(k, n) for k in counts) if self.unequal else 0.0
        return ((1 - self.unequal) * equal + self.unequal * unequal) / len(counts) / (n * (n - 1))

    def config(self) -> dict[str, Any]:
        """Return all settings, which determine the sets together with the seed."""
        settings = {"k": [self.k_min, self.k_max], "kinds": list(self.kinds), "varied": self.varied}
        # Omitted if 0, as in runs that predate the field
        return settings | ({"unequal": self.unequal} if self.unequal else {})

    def _check_k_max(self, k_max: int | None) -> int:
        if k_max is not None and not self.k_min <= k_max <= self.k_max:
            raise ValueError(f"k_max is {k_max}; expected {self.k_min} to {self.k_max}, as the sampler")
        return self.k_max if k_max is None else k_max

    def _draw_kinds(self, k: Tensor, allowed_kinds: Tensor, generator: torch.Generator) -> Tensor:
        """Draw kinds of groups with k clusters in total, shape (b, k_max), -1 beyond the last group.

        Args:
            k: number of clusters of each set, shape (b,).
            allowed_kinds: mask of the kinds of a group that starts with a given cluster, shape (b, k_max, kinds).
            generator: random generator.
        """
        clusters = torch.tensor([kind.n_clusters for kind in KINDS], device=k.device)
        allowed = torch.zeros(len(KINDS), dtype=torch.bool, device=k.device)
        allowed[list(self.kinds)] = True
        possible = allowed & allowed_kinds
        remaining, kinds = k.clone(), []
        rows = torch.arange(len(k), device=k.device)
        for _ in range(allowed_kinds.shape[1]):
            fits = possible[rows, (k - remaining).clamp(max=allowed_kinds.shape[1] - 1)] & (
                clusters <= remaining.unsqueeze(-1)
            )  # (b, kinds)
            fits[:, GAUSSIANS[0]] |= remaining == 0  # so that the distribution is not empty; discarded below
            kind = torch.multinomial(fits.to(torch.float32), 1, generator=generator).squeeze(1)
            kinds.append(torch.where(remaining > 0, kind, -1))
            remaining = remaining - torch.where(remaining > 0, clusters[kind], 0)
        return torch.stack(kinds, dim=1)


def _allowed_kinds(k: Tensor, n: int, max_clusters: int, sizes: Tensor | None, is_unequal: Tensor | None) -> Tensor:
    """Return a mask of the kinds of a group, by its first cluster, with enough points, shape (b, k_max, kinds)."""
    min_points = torch.tensor([kind.min_points for kind in KINDS], device=k.device)
    equal = ((n // k).unsqueeze(-1) >= min_points).unsqueeze(1).expand(-1, max_clusters, -1)
    if sizes is None or is_unequal is None:
        return equal
    # The smallest cluster of the group; 0 for groups that would extend beyond the last cluster.
    after = torch.cat([sizes, sizes.new_zeros(len(k), MAX_GROUP_CLUSTERS - 1)], dim=1)
    smallest = torch.stack([after.unfold(1, kind.n_clusters, 1)[:, :max_clusters].amin(-1) for kind in KINDS], dim=-1)
    unequal = smallest >= torch.tensor(MIN_POINTS_UNEQUAL, device=k.device)
    return torch.where(is_unequal.unsqueeze(-1), unequal, equal)


def _assign_by_size(kind: Tensor, sizes: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Assign points as `_assign_equally` does, for clusters of given sizes, shape (b, k_max)."""
    b, max_clusters = sizes.shape
    clusters = torch.tensor([kind.n_clusters for kind in KINDS], device=kind.device)[kind.clamp_min(0)] * (kind >= 0)
    position = torch.arange(n, device=kind.device).expand(b, n).contiguous()
    label = torch.searchsorted(sizes.cumsum(1), position, right=True)  # (b, n)
    ends = clusters.cumsum(1)  # (b, g)
    of_cluster = torch.searchsorted(
        ends, torch.arange(max_clusters, device=kind.device).expand(b, max_clusters).contiguous(), right=True
    )
    group = of_cluster.gather(1, label)
    return group, label - (ends - clusters).gather(1, group), label


def _smallest_curve(kind: Tensor, group: Tensor, label: Tensor, sizes: Tensor) -> Tensor:
    """Return the size of the smallest ring or moon of each set, shape (b,); n for sets without any."""
    on_curve = kind.gather(1, group) < GAUSSIANS[0]  # (b, n)
    return torch.where(on_curve, sizes.gather(1, label), label.shape[1]).amin(1)


def _stretch_sets(points: Tensor, varies: Tensor, generator: torch.Generator) -> Tensor:
    """Stretch some of the varied sets along a random direction, which preserves linear separability."""
    b = len(points)
    random, angle, stretch = torch.rand(3, b, generator=generator, device=points.device)  # (b,) each
    stretch = torch.where(varies & (random < STRETCHED_FRACTION), MAX_STRETCH**stretch, 1.0)
    along = torch.stack([(math.pi * angle).cos(), (math.pi * angle).sin()], dim=-1)  # (b, 2)
    # x + (s - 1) (x . u) u is s times as long along u and the same across it.
    along = along.unsqueeze(1)  # (b, 1, 2)
    # Not a matrix product, which a GPU may round more coarsely than the differences of neighbours.
    shift = (stretch - 1).view(-1, 1, 1) * (points * along).sum(-1, keepdim=True)  # (b, n, 1)
    return points + shift * along


def _assign_equally(kind: Tensor, k: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return group, role within the group, and cluster of n points per set, each (b, n), sorted by group.

    Every cluster gets n // k points, and the last one the remainder. Points of several Gaussians of a group are
    distributed among them at random, with at least one point each.
    """
    b = len(k)
    clusters = torch.tensor([kind.n_clusters for kind in KINDS], device=k.device)[kind.clamp_min(0)] * (kind >= 0)
    base = (n // k).unsqueeze(-1)  # (b, 1)
    ends = (clusters * base).cumsum(1)  # (b, g)
    last = (kind >= 0).sum(1, keepdim=True) - 1
    groups = torch.arange(kind.shape[1], device=k.device)
    ends = torch.where(groups >= last, n, ends)  # the remainder goes to the last group
    position = torch.arange(n, device=k.device).expand(b, n).contiguous()
    group = torch.searchsorted(ends.contiguous(), position, right=True)  # (b, n)
    starts = torch.cat([ends.new_zeros(b, 1), ends[:, :-1]], dim=1)
    within = position - starts.gather(1, group)
    n_clusters = clusters.gather(1, group)  # clusters of the point's group
    sequential = torch.minimum(within // base, n_clusters - 1)
    random = (torch.rand(b, n, generator=generator, device=k.device) * n_clusters).long().clamp(max=n_clusters - 1)
    shuffled_role = torch.where(within < n_clusters, within, random)
    role = torch.where(kind.gather(1, group) >= GAUSSIANS[0], shuffled_role, sequential)
    first = clusters.cumsum(1) - clusters
    return group, role, first.gather(1, group) + role


def _expected_pairs(k: int, n: int, kinds: tuple[int, ...]) -> float:
    """Return the expected number of ordered pairs of points in one cluster, for sets of `_assign_equally`."""
    base, over = n // k, n % k

    def pairs(kind: int, extra: int) -> float:
        clusters = KINDS[kind].n_clusters
        if kind < GAUSSIANS[0]:
            return (clusters - 1) * base * (base - 1) + (base + extra) * (base + extra - 1)
        free = clusters * base + extra - clusters  # points beyond the first of each cluster
        mean = free / clusters
        square = free * (1 / clusters) * (1 - 1 / clusters) + mean**2
        return clusters * (square + mean)  # E[s (s - 1)] with s = 1 + Bin(free, 1 / clusters)

    @cache
    def rest(remaining: int) -> float:
        if remaining == 0:
            return 0.0
        fits = [kind for kind in kinds if KINDS[kind].n_clusters <= remaining and KINDS[kind].min_points <= base]
        total = 0.0
        for kind in fits:
            after = remaining - KINDS[kind].n_clusters
            total += pairs(kind, over if after == 0 else 0) + rest(after)
        return total / len(fits)

    return rest(k)
