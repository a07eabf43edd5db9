"""Sizes of clusters that have little to do with one another: shares of a set are Dirichlet, of a varying concentration.

Users' clusters are seldom of one size, and a network that has only seen equal ones parts the large and joins the small.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST = 5  # points of a cluster: fewer are strays
DEGREES = (1, 2, 4)  # of freedom: twice the concentrations, of which each set has one


def draw_sizes(k: Tensor, n: int, most: int, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws sizes of clusters, and in which sets they shall be of these sizes.

    Every cluster has FEWEST points, or an equal share if that is less; each of the other points falls to a cluster by
    chance, with odds that are sums of squares of normal numbers, as many as one of DEGREES says.

    Args:
        k: clusters of each set, shape (b,).
        n: points of each set.
        most: the most clusters there can be.
        share: of the sets whose clusters shall differ in size.
        generator: the source of randomness, on the device of k.

    Returns:
        Sizes, shape (b, most), n in sum and 0 beyond the last cluster; and whether they hold, boolean, shape (b, 1).
    """
    b, device = len(k), k.device
    differ = torch.rand(b, 1, generator=generator, device=device) < share
    degrees = torch.tensor(DEGREES, device=device)
    degrees = degrees[torch.randint(len(DEGREES), (b, 1, 1), generator=generator, device=device)]
    squares = torch.randn(b, most, max(DEGREES), generator=generator, device=device).square()
    there = torch.arange(most, device=device) < k.unsqueeze(-1)  # (b, most)
    weights = (squares * (torch.arange(max(DEGREES), device=device) < degrees)).sum(-1) * there
    ends = weights.cumsum(1)  # (b, most)
    least = (n // k).clamp(max=FEWEST).unsqueeze(-1)  # (b, 1)
    lots = torch.rand(b, n, generator=generator, device=device) * ends[:, -1:]
    lots = torch.minimum(torch.searchsorted(ends, lots, right=True), k.unsqueeze(-1) - 1)  # (b, n), clusters
    position = torch.arange(n, device=device)
    free = (position >= least * k.unsqueeze(-1)).long()  # (b, n), 1 for points beyond those that clusters have anyway
    return (least * there).scatter_add(1, lots, free), differ


def expected_unequal_pairs(k: int, n: int) -> float:
    """The expected number of ordered pairs of points of one cluster, k E[s (s - 1)], of sizes as `draw_sizes` draws."""
    least = min(FEWEST, n // k)
    free = n - least * k
    mean = least + free / k
    binomial = free * (1 / k) * (1 - 1 / k)
    spread = [(free + k * degrees / 2) / (1 + k * degrees / 2) for degrees in DEGREES]  # times the binomial variance
    return k * (binomial * sum(spread) / len(spread) + mean**2 - mean)
