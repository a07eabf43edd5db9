"""Cells of nearby points, and nearest neighbours found by visiting few of them.

The points are split by k-means, and again, until a cell holds about sqrt(n) of them, at most LARGEST_CELL. A query is
compared with the points of its own cell and of the cells around it. All queries of one cell share their candidates, so
their distances are one matrix product: several times faster than scanning an inverted list for each query.

How many cells to visit is not guessed: a sample of queries is answered exactly, and the places of the true neighbours
in the order of visits (`IVFIndex.places`) give the recall of every possible number of visits at once.

The k nearest neighbours of every point: exactly for few points, in cells for many.

Everything is matrix products and selections on torch, so that the same code runs on all cores and on a GPU, and no
array larger than a block is ever held. Cells take over from EXACT_UP_TO points on; they are an inverted file (IVF)
whose queries are answered a cell at a time, which turns the scan into matrix products: see `cells.py`.
`python -m benchmarks.label_neighbours` measures both against scikit-learn and faiss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

BLOCK = 2**23  # numbers in the largest temporary array: 32 MB, which stays in a large cache
LARGEST_CELL = 512  # measured: smaller cells waste time on overhead, larger ones on far points
BRANCHES = 64  # parts of one split
FARTHEST_VISIT = 1024  # cells that are ever ordered around a cell
FAINT = 2.0**-11  # squared distance over squared norm below which float32 leaves a ranking half its digits or fewer
GROUP = 16  # entries that compete for a place in the second stage of `topk_smallest`


class IVFIndex:
    """Points in cells, ready to be searched for k neighbours.

    Args:
        points: shape (n, d).
        k: neighbours to find.
        visits: how many cells a query visits; more where they hold too few points.
        seed: another one gives other cells.

    Building costs O(n log n) time and O(n d) memory.
    """

    def __init__(self, points: Tensor, k: int, visits: int = 1, seed: int = 0) -> None:
        self.k = k
        self.visits = visits
        self.cell = partition(points, seed)  # (n,)
        sizes = torch.bincount(self.cell)
        self.order = torch.argsort(self.cell, stable=True)  # (n,), position in the cells -> position in the data
        self.sorted = points[self.order]
        ends = sizes.cumsum(0)
        self.starts, self.ends = (ends - sizes).tolist(), ends.tolist()
        self.centres = torch.zeros(len(sizes), points.shape[1]).to(points)
        self.centres = self.centres.index_add_(0, self.cell, points) / sizes[:, None]
        self.around = self._visiting_order()

    def query_self(self) -> tuple[Tensor, Tensor]:
        """The k nearest other points of every point and how far they are, both of shape (n, k), nearest first."""
        return self._search(self.sorted, [e - s for s, e in zip(self.starts, self.ends, strict=True)], self.order, True)

    def of(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The k nearest points of each query and how far they are, both of shape (q, k), nearest first."""
        home = nearest_center(queries, self.centres)  # (q,)
        order = torch.argsort(home, stable=True)
        return self._search(queries[order], torch.bincount(home, minlength=len(self.centres)).tolist(), order, False)

    def _search(self, queries: Tensor, sizes: list[int], order: Tensor, exclude_self: bool) -> tuple[Tensor, Tensor]:
        """Answers queries that are sorted by cell, `sizes` of them in each, and puts the answers where `order` says."""
        index = torch.empty(len(queries), self.k, dtype=torch.long, device=queries.device)
        distance = queries.new_empty(len(queries), self.k)
        for cell, (block, where) in enumerate(zip(torch.split(queries, sizes), torch.split(order, sizes), strict=True)):
            if len(block):
                candidates = self._candidates(cell)  # (c,), positions in the cells, those of this cell first
                # Seen from the middle of the block, float32 resolves even a cell that lies far from the origin.
                middle = block.mean(dim=0, keepdim=True)
                near, far = nearest(block - middle, self.sorted[candidates].sub_(middle), self.k, exclude_self)
                index[where], distance[where] = self.order[candidates[near]], far
        return index, distance

    def _candidates(self, cell: int) -> Tensor:
        """The points to compare with: as many cells as are due, and more while they hold too few points."""
        spans, count = [], 0
        for visit, other in enumerate(self.around[cell].tolist()):
            if visit >= self.visits and count > self.k:
                break
            start, end = self.starts[other], self.ends[other]
            spans.append(torch.arange(start, end, device=self.sorted.device))
            count += end - start
        return torch.cat(spans)

    def _visiting_order(self) -> Tensor:
        """For each cell the cells around it, itself first, shape (cells, at most FARTHEST_VISIT)."""
        far = min(FARTHEST_VISIT, len(self.centres))
        norms = self.centres.square().sum(dim=1)
        around = []
        rows = max(1, BLOCK // len(self.centres))
        for first, block in zip(range(0, len(self.centres), rows), torch.split(self.centres, rows), strict=True):
            distance = squared_distances_to(block, self.centres, norms)
            distance.diagonal(first).fill_(-torch.inf)
            around.append(distance.topk(far, largest=False).indices)
        return torch.cat(around)

    def places(self, queries: Tensor, found: Tensor) -> Tensor:
        """At which visit each of some points would be met, counted from 0.

        Args:
            queries: positions of points that look for neighbours, shape (q,).
            found: positions of their neighbours, shape (q, k).

        Returns:
            The places, shape (q, k); as many as are ever visited for a point that is met at none.
        """
        visits = self.around[self.cell[queries]]  # (q, v)
        places = torch.full_like(found, visits.shape[1])
        for some in torch.split(torch.arange(len(queries), device=found.device), 64):
            met = self.cell[found[some]][:, :, None] == visits[some][:, None, :]  # (64, k, v)
            places[some] = torch.where(met.any(dim=2), met.int().argmax(dim=2), visits.shape[1])
        return places


def partition(points: Tensor, seed: int = 0) -> Tensor:
    """Splits points by k-means until no part is much larger than a cell should be; equal points stay together.

    Args:
        points: shape (n, d).
        seed: another one gives other cells.

    Returns:
        The cell of each point, shape (n,), numbered from 0 without gaps.
    """
    size = min(LARGEST_CELL, math.isqrt(len(points)))
    cell = torch.zeros(len(points), dtype=torch.long, device=points.device)
    cells, parts = 0, [torch.arange(len(points), device=points.device)]
    while parts:
        members = parts.pop()
        pieces = _split(points, members, size, seed) if len(members) > 2 * size else [members]
        if len(pieces) == 1:
            cell[members] = cells
            cells += 1
        else:
            parts.extend(pieces)
    return cell


def _split(points: Tensor, members: Tensor, size: int, seed: int) -> list[Tensor]:
    branches = min(BRANCHES, -(-len(members) // size))
    part = points[members]
    home = nearest_center(part, k_means(part, branches, seed=seed))
    sizes = torch.bincount(home, minlength=branches).tolist()
    return [piece for piece in torch.split(members[torch.argsort(home, stable=True)], sizes) if len(piece)]


def k_means(points: Tensor, k: int, *, rounds: int = 6, sample_per_centre: int = 64, seed: int = 0) -> Tensor:
    """Centres good enough to split by: a few rounds of Lloyd's algorithm on a sample.

    Args:
        points: shape (n, d), n >= k.
        k: number of centres.
        rounds: rounds of Lloyd's algorithm.
        sample_per_centre: points looked at for each centre.
        seed: of the sample.

    Returns:
        Centres, shape (k, d). A centre that lost all its points stays where it was.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[: k * sample_per_centre]
    sample = points[chosen.to(points.device)]  # (s, d)
    centres = sample[:k].clone()
    for _ in range(rounds):
        home = nearest_center(sample, centres)
        sums = torch.zeros_like(centres).index_add_(0, home, sample)
        sizes = torch.bincount(home, minlength=k)[:, None]  # (k, 1)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1), centres)
    return centres


def nearest_center(points: Tensor, centres: Tensor) -> Tensor:
    """The index of the centre nearest to each point, shape (n,)."""
    norms = centres.square().sum(dim=1)
    rows = max(1, BLOCK // len(centres))
    # Answers have their place before the first block: left between blocks, they would keep the heap from reusing it.
    home = torch.empty(len(points), dtype=torch.long, device=points.device)
    for answers, block in zip(torch.split(home, rows), torch.split(points, rows), strict=True):
        answers.copy_(squared_distances_to(block, centres, norms).argmin(dim=1))
    return home


def nearest(queries: Tensor, points: Tensor, k: int, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """The k nearest points of each query, exactly, a block of queries at a time.

    Args:
        queries: shape (q, d).
        points: shape (n, d), n >= k.
        k: how many.
        exclude_self: query i is point i, and not its own neighbour.

    Returns:
        Indices and Euclidean distances, both of shape (q, k), nearest first.
    """
    index = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    distance = queries.new_empty(len(queries), k)
    if k == 0:
        return index, distance
    norms = points.square().sum(dim=1)  # (n,)
    rows = max(1, BLOCK // max(len(points), k * queries.shape[1]))
    for part in torch.split(torch.arange(len(queries), device=queries.device), rows):
        block, own = queries[part], part if exclude_self else None
        index[part], distance[part] = _ranked(block, points, norms, k, own)
        # Where the neighbours are close and the origin is far, the ranking's float32 cannot tell them apart.
        lost = part[distance[part, -1].square() < FAINT * block.square().sum(dim=1)]
        exact = points.double() if len(lost) else points
        for again in torch.split(lost, max(1, rows // 2)):
            if len(again):
                own = again if exclude_self else None
                found, far = _ranked(queries[again].double(), exact, exact.square().sum(dim=1), k, own)
                index[again], distance[again] = found, far.to(distance)
    return index, distance


def _ranked(queries: Tensor, points: Tensor, norms: Tensor, k: int, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """`nearest` for one block of queries; `own` are their positions among the points, shape (b,), to be left out."""
    ranking = squared_distances_to(queries, points, norms)  # (b, n)
    if own is not None:
        ranking.scatter_(1, own[:, None], torch.inf)
    found = topk_smallest(ranking, k)  # (b, k)
    # What is good enough to rank is not good enough for a kernel: distances are taken from differences.
    far, order = (points[found] - queries[:, None]).square_().sum(dim=2).sqrt_().sort(dim=1)  # (b, k)
    return found.gather(1, order), far


def squared_distances_to(queries: Tensor, points: Tensor, norms: Tensor) -> Tensor:
    """Squared distances less the query's own norm, which changes no order: |p|^2 - 2 qp, shape (q, n)."""
    return torch.addmm(norms[None, :], queries, points.T, alpha=-2)


def topk_smallest(values: Tensor, k: int) -> Tensor:
    """Where the k smallest entries of each row are, unordered; exact, and faster than topk on long rows.

    Entries are grouped; the k smallest lie within the k groups of smallest minimum, and only those are looked into.

    Args:
        values: shape (r, c), c >= k.
        k: how many.

    Returns:
        Column indices, shape (r, k).
    """
    rows, columns = values.shape
    width = columns // GROUP
    if width <= 2 * k:
        return values.topk(k, dim=1, largest=False, sorted=False).indices
    # Group g holds columns g, g + width, g + 2 width...: the minimum then runs along contiguous memory.
    minima = values[:, : GROUP * width].reshape(rows, GROUP, width).amin(dim=1)  # (r, width)
    groups = minima.topk(k, dim=1, largest=False, sorted=False).indices  # (r, k)
    steps = torch.arange(0, GROUP * width, width, device=values.device)
    candidates = (groups[:, :, None] + steps).reshape(rows, -1)  # (r, k GROUP)
    rest = torch.arange(GROUP * width, columns, device=values.device).expand(rows, -1)
    candidates = torch.cat([candidates, rest], dim=1)
    best = values.gather(1, candidates).topk(k, dim=1, largest=False, sorted=False).indices
    return candidates.gather(1, best)


# Where cells begin to pay for themselves, measured on two cores and on an H200.
EXACT_UP_TO = {"cpu": 10_000, "cuda": 200_000}
WORTHWHILE = 0.2  # share of the cells of each partition beyond which comparing with all points is faster
SAMPLE = 512  # queries answered exactly: recall is known to about one percent


@dataclass(frozen=True)
class Neighbors:
    """The k nearest points of each query, nearest first.

    Attributes:
        index: positions among the points, shape (q, k), int64.
        distance: Euclidean distances, shape (q, k), of the points' type.
    """

    index: Tensor
    distance: Tensor


class NeighborSearch:
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
    def _cells(self) -> tuple[IVFIndex, IVFIndex] | None:
        """Two partitions that are visited as often as it takes for both together to reach the recall, if that pays.

        What one of them misses is not spread evenly: a cell may cut a few points off from their own kind altogether,
        and a graph that lacks these edges falls apart. What one partition separates the other keeps together.
        """
        both = IVFIndex(self.points, self.k, seed=0), IVFIndex(self.points, self.k, seed=1)
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

    def query_self(self) -> Neighbors:
        """The k nearest other points of every point, or all of them if there are fewer.

        No point is its own neighbour; duplicates are each other's.
        """
        if self.exact or self._cells is None:
            others = min(self.k, max(0, len(self.points) - 1))
            return self._in_units(*nearest(self.points, self.points, others, exclude_self=True))
        one, other = self._cells
        return self._in_units(*_merged(one.query_self(), other.query_self()))

    def of(self, queries: Tensor) -> Neighbors:
        """The k nearest points of each query, shape (q, d)."""
        queries = self._scaled(queries)
        if self.exact or self._cells is None:
            return self._in_units(*nearest(queries, self.points, self.k))
        one, other = self._cells
        return self._in_units(*_merged(one.of(queries), other.of(queries)))

    def _in_units(self, index: Tensor, distance: Tensor) -> Neighbors:
        return Neighbors(index, distance.to(self.origin) * self.unit)


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
