"""How the items of a set lie to one another: what attention looks at beside their contents.

Distances are given as logarithms: by themselves, in units of either item's nearest neighbours, so that dense and
sparse clusters look alike, and in units of the distance within which an eighth of the set lies, so that a set looks
alike however many items it is drawn with. Points have directions besides: whether one lies where another's neighbours
lead is what tells two moons that touch from one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NEAREST = 5  # neighbours whose mean distance is the scale of a neighbourhood
RANKS = (1, 2, 4, 8, 16, 32)  # neighbours whose distance describes an item's surroundings...
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # ...and shares of the set, the nearest first
WIDE = 2  # the place among SHARES of the one that is a scale
FLOOR = 1e-6  # squared distances below this all look the same
PAIR_FEATURES = 5
ITEM_FEATURES = len(RANKS) + len(SHARES)
CROWDS = (3, 8)  # neighbours within whose distance the direction of a neighbourhood is taken
ALIGNMENTS = 3 * len(CROWDS)


def relations(squared: Tensor) -> tuple[Tensor, Tensor]:
    """Features of pairs and of items from the distances alone; shuffled items give shuffled features.

    Args:
        squared: squared distances, shape (b, n, n), n >= 2.

    Returns:
        Of pairs, shape (b, n, n, PAIR_FEATURES): log d, and log d / s for the near and the wide scale of either item.
        Of items, shape (b, n, ITEM_FEATURES): log distances to the neighbours of `RANKS` (the farthest where there are
        fewer) and of `SHARES`. Costs O(b n^2) memory and O(b n^2 log n) time.
    """
    n = squared.shape[-1]
    log = 0.5 * (squared + FLOOR).log()  # (b, n, n)
    # The nearest is the item itself, or an exact copy of it, which is as good.
    by_rank = log.sort(dim=-1).values[..., 1:]  # (b, n, n - 1), ascending
    near = by_rank[..., : min(NEAREST, n - 1)].mean(-1)  # (b, n), the logarithm of a geometric mean
    places = [min(rank, n - 1) - 1 for rank in RANKS] + [math.ceil(share * (n - 1)) - 1 for share in SHARES]
    items = by_rank[..., places]  # (b, n, ranks + shares)
    wide = items[..., len(RANKS) + WIDE]  # (b, n)
    scales = [scale.unsqueeze(side) for scale in (near, wide) for side in (-1, -2)]
    pairs = torch.stack([log, *(log - scale for scale in scales)], dim=-1)
    return pairs, items


def alignments(z: Tensor, squared: Tensor) -> Tensor:
    """How pairs of points lie to the directions of each other's neighbourhoods; turning the set changes nothing.

    The neighbourhood of point i has the matrix C_i = sum_j w_ij v_ij v_ij^T with v_ij = z_j - z_i, scaled to trace 1,
    and Gaussian weights as wide as the distance to its m-th neighbour, for each m of `CROWDS`.

    Args:
        z: coordinates, shape (b, n, d), d small.
        squared: their squared distances, shape (b, n, n).

    Returns:
        Shape (b, n, n, ALIGNMENTS): for each m u^T C_i u, u^T C_j u and tr C_i C_j, where u is the direction from i to
        j, each less 1 / d, its value where there is no direction. Costs O(b n^2 d^2) time and O(b n^2 d) memory.
    """
    n, d = z.shape[-2:]
    step = z.unsqueeze(-3) - z.unsqueeze(-2)  # (b, n, n, d), from i to j
    towards = step / (squared + FLOOR).sqrt().unsqueeze(-1)  # (b, n, n, d)
    ranked = squared.sort(dim=-1).values  # the first is the item itself
    features = []
    for crowd in CROWDS:
        reach = ranked[..., min(crowd, n - 1), None] + FLOOR  # (b, n, 1)
        weights = torch.exp(-squared / reach)  # (b, n, n)
        spread = torch.einsum("bij,bijp,bijq->bipq", weights, step, step)  # (b, n, d, d)
        size = spread.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]  # (b, n, 1, 1)
        nowhere = torch.eye(d, device=z.device, dtype=z.dtype) / d
        spread = torch.where(size > FLOOR, spread / size.clamp_min(FLOOR), nowhere) - nowhere
        along = torch.einsum("bijp,bipq,bijq->bij", towards, spread, towards)  # (b, n, n)
        alike = torch.einsum("bipq,bjpq->bij", spread, spread)  # (b, n, n)
        features += [along, along.transpose(1, 2), alike]
    return torch.stack(features, dim=-1)
