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

from entourage.game.cells import BLOCK, Cells, nearest

# Where cells begin to pay for themselves, measured on two cores and on an H200.
EXACT_UP_TO = {"cpu": 10_000, "cuda": 200_000}
WORTHWHILE = 0.2  # share of the cells of each partition beyond which comparing with all points is faster
SAMPLE = 512  # queries answered exactly: recall is known to about one percent


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

    Points are told apart to about 1e-7 of how far they lie from the mean of all: where a few outliers have dragged that
    mean away by more than 1e4 times what the others lie apart, neighbours among the others begin to be missed.

    Args:
        points: shape (n, d), finite; the search runs on their device, in float32.
        k: how many neighbours are wanted, 0 to n.
        recall: the share of true neighbours to find. Below 1, large sets are searched in the cells of two partitions,
            and as many cells are visited as a sample of exact answers says are needed; 1 is exact for every n.
    """

    def __init__(self, points: Tensor, k: int, recall: float = 0.97) -> None:
        if not 0 <= k <= len(points):
            raise ValueError(f"{k} neighbours asked of {len(points)} points; expected 0 to {len(points)}")
        if not 0 < recall <= 1:
            raise ValueError(f"recall is {recall}; expected a share above 0 and up to 1")
        # In units of their spread around their mean, float32 serves all data without extreme outliers: where points lie
        # far from 0, |a|^2 + |b|^2 - 2ab does not cancel, and nothing overflows.
        self.origin = points.mean(dim=0, keepdim=True)  # (1, d)
        self.unit = _largest(points - self.origin)
        self.points = self._scaled(points)
        self.k = k
        self.recall = recall
        enough = EXACT_UP_TO.get(points.device.type, EXACT_UP_TO["cpu"])
        self.exact = recall == 1 or len(points) <= max(enough, k + 1)

    def __getstate__(self) -> dict[str, object]:
        # What was fitted on a GPU can be loaded where there is none; cells are quickly made again.
        kept = {name: value for name, value in self.__dict__.items() if name != "_cells"}
        return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in kept.items()}

    def _scaled(self, points: Tensor) -> Tensor:
        return ((points.to(self.origin) - self.origin) / self.unit).float()

    @cached_property
    def _cells(self) -> tuple[Cells, Cells] | None:
        """Two partitions that are visited as often as it takes for both together to reach the recall, if that pays.

        What one of them misses is not spread evenly: a cell may cut a few points off from their own kind altogether,
        and a graph that lacks these edges falls apart. What one partition separates the other keeps together.
        """
        both = Cells(self.points, self.k, seed=0), Cells(self.points, self.k, seed=1)
        chosen = torch.randperm(len(self.points), generator=torch.Generator().manual_seed(0))[:SAMPLE]
        sample = chosen.to(self.points.device)
        exact, _ = nearest(self.points[sample], self.points, self.k + 1)  # (s, k + 1), themselves included
        place = torch.stack([cells.places(sample, exact) for cells in both]).amin(dim=0)
        others = place[exact != sample[:, None]]
        met = torch.bincount(others, minlength=int(others.max()) + 1).cumsum(0) / len(others)  # recall of 1, 2, ...
        visits = int(torch.searchsorted(met, self.recall)) + 1
        if visits > WORTHWHILE * min(len(cells.centres) for cells in both):
            return None
        for cells in both:
            cells.visits = visits
        return both

    def among_themselves(self) -> Neighbours:
        """The k nearest other points of every point, or all of them if there are fewer.

        No point is its own neighbour; duplicates are each other's.
        """
        if self.exact or self._cells is None:
            others = min(self.k, max(0, len(self.points) - 1))
            return self._in_units(*nearest(self.points, self.points, others, exclude_self=True))
        one, other = self._cells
        return self._in_units(*_merged(one.among_themselves(), other.among_themselves()))

    def of(self, queries: Tensor) -> Neighbours:
        """The k nearest points of each query, shape (q, d)."""
        queries = self._scaled(queries)
        if self.exact or self._cells is None:
            return self._in_units(*nearest(queries, self.points, self.k))
        one, other = self._cells
        return self._in_units(*_merged(one.of(queries), other.of(queries)))

    def _in_units(self, index: Tensor, distance: Tensor) -> Neighbours:
        return Neighbours(index, distance.to(self.origin) * self.unit)


def _merged(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The k nearest of two answers to the same queries, nearest first, in the memory of the first answer."""
    (index, distance), (more, farther), k = one, other, one[0].shape[1]
    for some in torch.split(torch.arange(len(index), device=index.device), max(1, BLOCK // max(1, k * k))):
        known = (more[some][:, :, None] == index[some][:, None, :]).any(dim=2)  # (b, k), found by both
        both = torch.cat([distance[some], farther[some].masked_fill(known, torch.inf)], dim=1)  # (b, 2k)
        distance[some], order = both.topk(k, dim=1, largest=False)
        index[some] = torch.cat([index[some], more[some]], dim=1).gather(1, order)
    return index, distance


def _largest(values: Tensor) -> Tensor:
    largest = values.abs().amax() if values.numel() else values.new_ones(())
    return torch.where(largest > 0, largest, torch.ones_like(largest))
