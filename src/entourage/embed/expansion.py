"""Expansion of embeddings by their nearest neighbours, which improves retrieval without labels."""

from __future__ import annotations

import torch
from torch import Tensor

from entourage.game.neighbors import NeighborSearch
from entourage.game.similarity import normalize_rows
from entourage.validation import check_count

BLOCK_ENTRIES = 2**24  # entries of the neighbours that are gathered at a time: 64 MiB


def expand_with_neighbors(
    embeddings: Tensor,
    gallery: Tensor | None = None,
    *,
    n_neighbors: int = 10,
    power: float = 3.0,
    recall: float = 1.0,
) -> Tensor:
    """Add to each embedding those of its nearest neighbours, weighted by similarity (alpha query expansion).

    The neighbours of an item are mostly of its class, so that their sum is closer to the other items of the class
    (Radenović et al., 2019). To search in expanded embeddings, expand the gallery as well. The result depends on all
    embeddings of the gallery: items that are added change it.

    Args:
        embeddings: shape (n, d).
        gallery: embeddings that are searched for neighbours, shape (m, d); None for `embeddings`, without the row
            itself.
        n_neighbors: number of neighbours; 0 only normalises the rows.
        power: the weight of a neighbour is its cosine, clamped at 0, to this power.
        recall: fraction of the true neighbours to find, see `NeighborSearch`; 1 is exact.

    Returns:
        Rows of length 1, shape (n, d). The exact search costs O(n m d) time.

    Raises:
        ValueError: `n_neighbors` or `power` is negative.

    Examples:
        >>> import torch
        >>> from entourage.embed import expand_with_neighbors
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> expand_with_neighbors(x, n_neighbors=1, power=1.0)[0]
        tensor([0.9597, 0.2809])
    """
    check_count("n_neighbors", n_neighbors, 0)
    if not power >= 0:
        raise ValueError(f"power is {power}; expected 0 or more")
    unit = normalize_rows(embeddings.float())
    base = unit if gallery is None else normalize_rows(gallery.float())
    n_found = min(n_neighbors, len(base) - 1 if gallery is None else len(base))
    if n_found < 1:
        return unit
    search = NeighborSearch(base, n_found, recall)
    indices = (search.query_self() if gallery is None else search.query(unit)).index  # (n, k)
    size = max(1, BLOCK_ENTRIES // (n_found * base.shape[1]))
    parts = []
    for rows, found in zip(torch.split(unit, size), torch.split(indices, size), strict=True):
        neighbors = base[found]  # (b, k, d)
        weights = (neighbors @ rows.unsqueeze(2)).clamp(min=0).pow(power)  # (b, k, 1)
        parts.append(normalize_rows(rows + (weights * neighbors).sum(dim=1)))
    return torch.cat(parts)
