"""How the items of a set lie to one another: what attention looks at beside their contents.

Distances are given as logarithms: by themselves, in units of either item's nearest neighbours, so that dense and
sparse clusters look alike, and in units of the distance within which an eighth of the set lies, so that a set looks
alike however many items it is drawn with.
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
