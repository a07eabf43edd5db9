"""How the items of a set lie to one another: what attention looks at beside their contents.

Distances are given as logarithms, by themselves and in units of either item's own neighbourhood, so that dense and
sparse, large and small clusters look alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEAREST = 5  # neighbours whose mean distance is the scale of a neighbourhood
RANKS = (1, 2, 4, 8, 16, 32)  # neighbours whose distance describes an item's surroundings
FLOOR = 1e-6  # squared distances below this all look the same
PAIR_FEATURES = 3
ITEM_FEATURES = len(RANKS)


def relations(squared: Tensor) -> tuple[Tensor, Tensor]:
    """Features of pairs and of items from the distances alone; shuffled items give shuffled features.

    Args:
        squared: squared distances, shape (b, n, n), n >= 2.

    Returns:
        Of pairs, shape (b, n, n, PAIR_FEATURES): log d, log d / s_i, log d / s_j for neighbourhood scales s. Of items,
        shape (b, n, ITEM_FEATURES): log distances to the neighbours of `RANKS`, the farthest where there are fewer.
        Costs O(b n^2) memory and O(b n^2) time.
    """
    n = squared.shape[-1]
    log = 0.5 * (squared + FLOOR).log()  # (b, n, n)
    most = min(max(RANKS), n - 1)
    # The nearest is the item itself, or an exact copy of it, which is as good.
    nearest = log.topk(most + 1, dim=-1, largest=False).values[..., 1:]  # (b, n, most), ascending
    scale = nearest[..., : min(NEAREST, n - 1)].mean(-1)  # (b, n), the logarithm of a geometric mean
    pairs = torch.stack([log, log - scale.unsqueeze(-1), log - scale.unsqueeze(-2)], dim=-1)
    items = nearest[..., [min(rank, most) - 1 for rank in RANKS]]  # (b, n, ranks)
    return pairs, items
