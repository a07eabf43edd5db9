"""Recall of approximate nearest neighbours."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.game import NeighborSearch


class Recall:
    """Comparison of found neighbours with the exact ones, on a sample of the points.

    Args:
        X: the points, shape (n, d).
        k: number of neighbours of a point, without itself.
        sample: number of sampled points.
    """

    def __init__(self, X: NDArray[np.float32], k: int, sample: int = 500) -> None:
        self.k = k
        self.sample = np.random.default_rng(1).choice(len(X), sample, replace=False)
        points = torch.from_numpy(X)
        self.exact = NeighborSearch(points, k + 1, recall=1.0).query(points[self.sample]).index.numpy()

    def of(self, found: NDArray[np.int64]) -> float:
        """Return the recall; `found` are the neighbours of the sampled points, with or without themselves."""
        rows = zip(found.tolist(), self.exact.tolist(), self.sample.tolist(), strict=True)
        return sum(len(set(f) & (set(e) - {i})) for f, e, i in rows) / (self.k * len(self.sample))
