"""How many of the true nearest neighbours were found."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.game import NeighborSearch


class Recall:
    """Compares neighbours that were found with the true ones, for a sample of the points.

    Args:
        X: the points, shape (n, d).
        k: neighbours of each, itself not counted.
    """

    def __init__(self, X: NDArray[np.float32], k: int, sample: int = 500) -> None:
        self.k = k
        self.sample = np.random.default_rng(1).choice(len(X), sample, replace=False)
        points = torch.from_numpy(X)
        self.exact = NeighborSearch(points, k + 1, recall=1.0).query(points[self.sample]).index.numpy()

    def of(self, found: NDArray[np.int64]) -> float:
        """The share that was found; `found` are the neighbours of the sampled points, with or without themselves."""
        rows = zip(found.tolist(), self.exact.tolist(), self.sample.tolist(), strict=True)
        return sum(len(set(f) & (set(e) - {i})) for f, e, i in rows) / (self.k * len(self.sample))
