"""Sizes of clusters that have little to do with one another: shares of a set are Dirichlet, of a varying concentration.

Users' clusters are seldom of one size, and a network that has only seen equal ones parts the large and joins the small.

Endless sets of 2D points whose clusters have many shapes: what a network for points learns from (appendix A).

Everything is drawn for the whole batch at once and on any device, so a GPU is fed without leaving it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from entourage.cluster.sampling.episodes import Episode, shuffled
from entourage.cluster.sampling.shapes import GAUSSIANS, KINDS, MAX_GROUP_CLUSTERS, draw_boxes, draw_shapes

MIN_CLUSTER_POINTS = 5  # points of a cluster: fewer are strays
DEGREES_OF_FREEDOM = (1, 2, 4)  # of freedom: twice the concentrations, of which each set has one


def draw_sizes(
    k: Tensor, n: int, max_clusters: int, fraction: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws sizes of clusters, and in which sets they shall be of these sizes.

    Every cluster has FEWEST points, or an equal share if that is less; each of the other points falls to a cluster by
    chance, with odds that are sums of squares of normal numbers, as many as one of DEGREES says.

    Args:
        k: clusters of each set, shape (b,).
        n: points of each set.
        max_clusters: the most clusters there can be.
        fraction: of the sets whose clusters shall differ in size.
        generator: the source of randomness, on the device of k.

    Returns:
        Sizes, shape (b, k_max), n in sum and 0 beyond the last cluster; and whether they hold, boolean, shape (b, 1).
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
    free = (
        position >= min_points * k.unsqueeze(-1)
    ).long()  # (b, n), 1 for points beyond those that clusters have anyway
    return (min_points * exists).scatter_add(1, random, free), is_unequal


def expected_unequal_pairs(k: int, n: int) -> float:
    """The expected number of ordered pairs of points of one cluster, k E[s (s - 1)], of sizes as `draw_sizes` draws."""
    min_points = min(MIN_CLUSTER_POINTS, n // k)
    free = n - min_points * k
    mean = min_points + free / k
    binomial = free * (1 / k) * (1 - 1 / k)
    spread = [
        (free + k * degrees / 2) / (1 + k * degrees / 2) for degrees in DEGREES_OF_FREEDOM
    ]  # times the binomial variance
    return k * (binomial * sum(spread) / len(spread) + mean**2 - mean)


REFERENCE_CLUSTER_SIZE = 14  # points a cluster in the appendix' fullest sets
MAX_NOISE = 3.0  # in units of the appendix'
STRETCHED_FRACTION = 0.5  # share of the sets that are stretched as a whole, where they vary...
MAX_STRETCH = 6.0  # ...by up to so much, in any direction
# Shares of sets as users have them, beside which a network must see enough of the appendix' to know these as well.
VARIED_FRACTION = 0.4  # sets that vary, where a network learns from both
UNEQUAL_FRACTION = 0.3  # sets whose clusters differ in size, where any vary
MIN_POINTS_UNEQUAL = (
    12,
    12,
    12,
    12,
    1,
    10,
    10,
)  # points a cluster, for each of KINDS to be seen beside larger clusters


class PointSampler:
    """Draws sets of 2D points: k uniform, groups of random kinds on a random grid.

    Clusters are of about equal size, or, in some of the sets, of sizes that have little to do with one another.

    Args:
        k_max: the most clusters of a set.
        k_min: the fewest.
        kinds: the kinds of groups to draw from, as indices in `shapes.KINDS`; a single Gaussian must be among them,
            since it alone fits wherever one cluster is left and points are few.
        varied: the share of the sets that differ more than the appendix' do, as those of users: curves have the more
            noise the more points there are to see them by, Gaussians differ in width, some are squares filled evenly,
            and half of these sets are stretched aslant. The default network learns from VARIED.
        unequal: the share of the sets whose clusters are of unequal size; None for UNEQUAL if any vary, else none.
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
            raise ValueError(f"k_min is {k_min} and k_max {k_max}; expected 1 <= k_min <= k_max")
        if GAUSSIANS[0] not in kinds or not set(kinds) <= set(range(len(KINDS))):
            raise ValueError(f"kinds are {kinds}; expected places in KINDS, {GAUSSIANS[0]} (one Gaussian) among them")
        if not 0 <= varied <= 1:
            raise ValueError(f"varied is {varied}; expected a share of the sets, from 0 to 1")
        if unequal is not None and not 0 <= unequal <= 1:
            raise ValueError(f"unequal is {unequal}; expected a share of the sets, from 0 to 1, or None")
        self.k_max = k_max
        self.k_min = k_min
        self.kinds = tuple(kinds)
        self.varied = varied
        self.unequal = unequal if unequal is not None else UNEQUAL_FRACTION if varied else 0.0

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n points each on the device of the generator.

        Args:
            sets: how many, b.
            n: points of each.
            generator: the source of randomness.
            k_max: the most clusters, if fewer than the sampler's.

        Raises:
            ValueError: n is too small for so many clusters, or k_max is not within the sampler's.
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
        """phi: the probability that two points of a set of n belong together, exactly, over all k."""
        counts = range(self.k_min, self._check_k_max(k_max) + 1)
        equal = sum(_expected_pairs(k, n, self.kinds) for k in counts)
        unequal = sum(expected_unequal_pairs(k, n) for k in counts) if self.unequal else 0.0
        return ((1 - self.unequal) * equal + self.unequal * unequal) / len(counts) / (n * (n - 1))

    def config(self) -> dict[str, Any]:
        """All settings: the sets follow from them and the seed."""
        settings = {"k": [self.k_min, self.k_max], "kinds": list(self.kinds), "varied": self.varied}
        return settings | ({"unequal": self.unequal} if self.unequal else {})  # runs on equal ones are known without

    def _check_k_max(self, k_max: int | None) -> int:
        if k_max is not None and not self.k_min <= k_max <= self.k_max:
            raise ValueError(f"k_max is {k_max}; this sampler draws {self.k_min} to {self.k_max} clusters")
        return self.k_max if k_max is None else k_max

    def _draw_kinds(self, k: Tensor, allowed_kinds: Tensor, generator: torch.Generator) -> Tensor:
        """Kinds of groups that hold k clusters together, shape (b, k_max), -1 beyond the last group.

        Args:
            k: clusters of each set, shape (b,).
            allowed_kinds: of which kinds a group may be that begins with a given cluster, shape (b, k_max, kinds).
            generator: the source of randomness.
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
            fits[:, GAUSSIANS[0]] |= remaining == 0  # something to draw from; put aside below
            kind = torch.multinomial(fits.to(torch.float32), 1, generator=generator).squeeze(1)
            kinds.append(torch.where(remaining > 0, kind, -1))
            remaining = remaining - torch.where(remaining > 0, clusters[kind], 0)
        return torch.stack(kinds, dim=1)


def _allowed_kinds(k: Tensor, n: int, max_clusters: int, sizes: Tensor | None, is_unequal: Tensor | None) -> Tensor:
    """Whether a group of each kind, from each cluster on, has the points to be seen, shape (b, k_max, kinds)."""
    min_points = torch.tensor([kind.min_points for kind in KINDS], device=k.device)
    equal = ((n // k).unsqueeze(-1) >= min_points).unsqueeze(1).expand(-1, max_clusters, -1)
    if sizes is None or is_unequal is None:
        return equal
    # The smallest of the clusters that a group would hold; past the last there is none to hold.
    after = torch.cat([sizes, sizes.new_zeros(len(k), MAX_GROUP_CLUSTERS - 1)], dim=1)
    smallest = torch.stack([after.unfold(1, kind.n_clusters, 1)[:, :max_clusters].amin(-1) for kind in KINDS], dim=-1)
    unequal = smallest >= torch.tensor(MIN_POINTS_UNEQUAL, device=k.device)
    return torch.where(is_unequal.unsqueeze(-1), unequal, equal)


def _assign_by_size(kind: Tensor, sizes: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `_assign_equally` for clusters of given sizes, shape (b, k_max)."""
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
    """Points of the smallest cluster of each set that is a ring or a moon, shape (b,); a set without any has many."""
    on_curve = kind.gather(1, group) < GAUSSIANS[0]  # (b, n)
    return torch.where(on_curve, sizes.gather(1, label), label.shape[1]).amin(1)


def _stretch_sets(points: Tensor, varies: Tensor, generator: torch.Generator) -> Tensor:
    """Stretches some of the sets that vary along a random direction; what a line can part, it still can."""
    b = len(points)
    random, angle, stretch = torch.rand(3, b, generator=generator, device=points.device)  # (b,) each
    stretch = torch.where(varies & (random < STRETCHED_FRACTION), MAX_STRETCH**stretch, 1.0)
    along = torch.stack([(math.pi * angle).cos(), (math.pi * angle).sin()], dim=-1)  # (b, 2)
    # x + (s - 1) (x . u) u is s times as long along u and the same across it.
    along = along.unsqueeze(1)  # (b, 1, 2)
    # Not a matrix product, which a GPU may round to fewer digits than neighbours differ in.
    shift = (stretch - 1).view(-1, 1, 1) * (points * along).sum(-1, keepdim=True)  # (b, n, 1)
    return points + shift * along


def _assign_equally(kind: Tensor, k: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Group, role within the group, and cluster of n points a set, each (b, n), in order of the groups.

    Every cluster gets n // k points and the last the remainder; several Gaussians of a group share theirs at random,
    one point each at least.
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
    """The expected number of ordered pairs of points of one cluster, in a set of n points and k clusters."""
    base, over = n // k, n % k

    def pairs(kind: int, extra: int) -> float:
        clusters = KINDS[kind].n_clusters
        if kind < GAUSSIANS[0]:
            return (clusters - 1) * base * (base - 1) + (base + extra) * (base + extra - 1)
        free = clusters * base + extra - clusters  # points beyond the one that each cluster has for certain
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
