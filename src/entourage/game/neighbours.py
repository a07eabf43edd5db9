"""The k nearest neighbours of every point: exactly for few points, in cells for many.

Everything is matrix products and selections on torch, so that the same code runs on all cores and on a GPU, and no
array larger than a block is ever held. Cells take over from EXACT_UP_TO points on; they are an inverted file (IVF)
whose queries are answered a cell at a time, which turns the scan into matrix products: see `cells.py`.
`python -m benchmarks.label_neighbours` measures both against scikit-learn and faiss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from entourage.game.cells import Cells, nearest

# Where cells begin to pay for themselves, measured on two cores and on an H200.
EXACT_UP_TO = {"cpu": 10_000, "cuda": 200_000}


@dataclass(frozen=True)
class Neighbours:
    """The k nearest points of each query, nearest first.

    Attributes:
        index: positions among the points, shape (q, k), int64.
        distance: Euclidean distances, shape (q, k), of the points' type.
    """

    index: Tensor
    distance: Tensor


class NeighbourSearch:
    """Finds the nearest of a set of points.

    Args:
        points: shape (n, d), finite; the search runs on their device, in float32.
        k: how many neighbours are wanted, 0 to n.
        recall: the share of true neighbours to find. Below 1, large sets are searched in cells, and as many cells are
            visited as a sample of exact answers says are needed; 1 is exact for every n.
    """

    def __init__(self, points: Tensor, k: int, recall: float = 0.97) -> None:
        if not 0 <= k <= len(points):
            raise ValueError(f"{k} neighbours asked of {len(points)} points; expected 0 to {len(points)}")
        if not 0 < recall <= 1:
            raise ValueError(f"recall is {recall}; expected a share above 0 and up to 1")
        # In units of their spread around their mean, float32 serves any data: |a|^2 + |b|^2 - 2ab does not cancel where
        # they lie far from 0, and nothing overflows.
        self.origin = points.mean(dim=0, keepdim=True)  # (1, d)
        self.unit = _largest(points - self.origin)
        self.points = self._scaled(points)
        self.k = k
        self.recall = recall
        enough = EXACT_UP_TO.get(points.device.type, EXACT_UP_TO["cpu"])
        self.exact = recall == 1 or len(points) <= max(enough, k + 1)

    def __getstate__(self) -> dict[str, object]:
        # What was fitted on a GPU can be loaded where there is none; cells are quickly made again.
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_cells", "_norms")}
        return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in kept.items()}

    def _scaled(self, points: Tensor) -> Tensor:
        return ((points.to(self.origin) - self.origin) / self.unit).float()

    @cached_property
    def _cells(self) -> Cells:
        return Cells(self.points, self.k, self.recall)

    def among_themselves(self) -> Neighbours:
        """The k nearest other points of every point. No point is its own neighbour; duplicates are each other's."""
        if self.exact:
            return self._in_units(nearest(self.points, self.points, self._norms, self.k, exclude_self=True))
        return self._in_units(self._cells.among_themselves())

    def of(self, queries: Tensor) -> Neighbours:
        """The k nearest points of each query, shape (q, d)."""
        queries = self._scaled(queries)
        found = nearest(queries, self.points, self._norms, self.k) if self.exact else self._cells.of(queries)
        return self._in_units(found)

    @cached_property
    def _norms(self) -> Tensor:
        return self.points.square().sum(dim=1)

    def _in_units(self, found: tuple[Tensor, Tensor]) -> Neighbours:
        index, distance = found
        return Neighbours(index, distance.to(self.origin) * self.unit)


def _largest(values: Tensor) -> Tensor:
    largest = values.abs().amax() if values.numel() else values.new_ones(())
    return torch.where(largest > 0, largest, torch.ones_like(largest))
