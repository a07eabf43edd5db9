"""Cells of nearby points, and nearest neighbours found by visiting few of them.

The points are split by k-means, and again, until a cell holds about sqrt(n) of them, at most LARGEST_CELL. A query is
compared with the points of its own cell and of the cells around it. All queries of one cell share their candidates, so
their distances are one matrix product: several times faster than scanning an inverted list for each query.

How many cells to visit is not guessed: a sample of queries is answered exactly, and the places of the true neighbours
in the order of visits (`IVFIndex.probe_ranks`) give the recall of every possible number of visits at once.

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
MAX_CELL_SIZE = 512  # measured: smaller cells waste time on overhead, larger ones on far points
BRANCHES = 64  # parts of one split
MAX_PROBES = 1024  # cells that are ever ordered around a cell
# Squared distance over squared norm below which float32 leaves a ranking half its digits or fewer.
MIN_RELATIVE_SQUARE = 2.0**-11
GROUP_SIZE = 16  # entries that compete for a place in the second stage of `topk_smallest`


class IVFIndex:
    """Points in cells, ready to be searched for k neighbours.

    Args:
        points: shape (n, d).
        n_neighbors: neighbours to find.
        n_probes: how many cells a query visits; more where they hold too few points.
        seed: another one gives other cells.

    Building costs O(n log n) time and O(n d) memory.
    """

    def __init__(self, points: Tensor, n_neighbors: int, n_probes: int = 1, seed: int = 0) -> None:
        self.n_neighbors = n_neighbors
        self.n_probes = n_probes
        self.cell = partition(points, seed)  # (n,)
        sizes = torch.bincount(self.cell)
        self.order = torch.argsort(self.cell, stable=True)  # (n,), position in the cells -> position in the data
        self.sorted = points[self.order]
        ends = sizes.cumsum(0)
        self.starts, self.ends = (ends - sizes).tolist(), ends.tolist()
        self.centers = torch.zeros(len(sizes), points.shape[1]).to(points)
        self.centers = self.centers.index_add_(0, self.cell, points) / sizes[:, None]
        self.probe_order = self._probe_order()

    def query_self(self) -> tuple[Tensor, Tensor]:
        """The k nearest other points of every point and how far they are, both of shape (n, k), nearest first."""
        return self._search(self.sorted, [e - s for s, e in zip(self.starts, self.ends, strict=True)], self.order, True)

    def query(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The k nearest points of each query and how far they are, both of shape (q, k), nearest first."""
        cell = nearest_center(queries, self.centers)  # (q,)
        order = torch.argsort(cell, stable=True)
        return self._search(queries[order], torch.bincount(cell, minlength=len(self.centers)).tolist(), order, False)

    def _search(self, queries: Tensor, sizes: list[int], order: Tensor, exclude_self: bool) -> tuple[Tensor, Tensor]:
        """Answers queries that are sorted by cell, `sizes` of them in each, and puts the answers where `order` says."""
        index = torch.empty(len(queries), self.n_neighbors, dtype=torch.long, device=queries.device)
        distance = queries.new_empty(len(queries), self.n_neighbors)
        for cell, (block, rows) in enumerate(zip(torch.split(queries, sizes), torch.split(order, sizes), strict=True)):
            if len(block):
                candidates = self._candidates(cell)  # (c,), positions in the cells, those of this cell first
                # Seen from the middle of the block, float32 resolves even a cell that lies far from the origin.
                mean = block.mean(dim=0, keepdim=True)
                index_in_block, distances = exact_neighbors(
                    block - mean, self.sorted[candidates].sub_(mean), self.n_neighbors, exclude_self
                )
                index[rows], distance[rows] = self.order[candidates[index_in_block]], distances
        return index, distance

    def _candidates(self, cell: int) -> Tensor:
        """The points to compare with: as many cells as are due, and more while they hold too few points."""
        ranges, count = [], 0
        for rank, other in enumerate(self.probe_order[cell].tolist()):
            if rank >= self.n_probes and count > self.n_neighbors:
                break
            start, end = self.starts[other], self.ends[other]
            ranges.append(torch.arange(start, end, device=self.sorted.device))
            count += end - start
        return torch.cat(ranges)

    def _probe_order(self) -> Tensor:
        """For each cell the cells around it, itself first, shape (cells, at most FARTHEST_VISIT)."""
        n_ordered = min(MAX_PROBES, len(self.centers))
        norms = self.centers.square().sum(dim=1)
        probe_order = []
        block_size = max(1, BLOCK // len(self.centers))
        for first, block in zip(
            range(0, len(self.centers), block_size), torch.split(self.centers, block_size), strict=True
        ):
            distance = squared_distances_to(block, self.centers, norms)
            distance.diagonal(first).fill_(-torch.inf)
            probe_order.append(distance.topk(n_ordered, largest=False).indices)
        return torch.cat(probe_order)

    def probe_ranks(self, queries: Tensor, neighbors: Tensor) -> Tensor:
        """At which visit each of some points would be met, counted from 0.

        Args:
            queries: positions of points that look for neighbours, shape (q,).
            neighbors: positions of their neighbours, shape (q, k).

        Returns:
            The places, shape (q, k); as many as are ever visited for a point that is met at none.
        """
        order = self.probe_order[self.cell[queries]]  # (q, v)
        probe_ranks = torch.full_like(neighbors, order.shape[1])
        for rows in torch.split(torch.arange(len(queries), device=neighbors.device), 64):
            same_cell = self.cell[neighbors[rows]][:, :, None] == order[rows][:, None, :]  # (64, k, v)
            probe_ranks[rows] = torch.where(same_cell.any(dim=2), same_cell.int().argmax(dim=2), order.shape[1])
        return probe_ranks


def partition(points: Tensor, seed: int = 0) -> Tensor:
    """Splits points by k-means until no part is much larger than a cell should be; equal points stay together.

    Args:
        points: shape (n, d).
        seed: another one gives other cells.

    Returns:
        The cell of each point, shape (n,), numbered from 0 without gaps.
    """
    size = min(MAX_CELL_SIZE, math.isqrt(len(points)))
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
    cell = nearest_center(part, k_means(part, branches, seed=seed))
    sizes = torch.bincount(cell, minlength=branches).tolist()
    return [piece for piece in torch.split(members[torch.argsort(cell, stable=True)], sizes) if len(piece)]


def k_means(points: Tensor, n_clusters: int, *, n_iter: int = 6, samples_per_center: int = 64, seed: int = 0) -> Tensor:
    """Centres good enough to split by: a few rounds of Lloyd's algorithm on a sample.

    Args:
        points: shape (n, d), n >= k.
        n_clusters: number of centres.
        n_iter: rounds of Lloyd's algorithm.
        samples_per_center: points looked at for each centre.
        seed: of the sample.

    Returns:
        Centres, shape (k, d). A centre that lost all its points stays where it was.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[: n_clusters * samples_per_center]
    sample = points[chosen.to(points.device)]  # (s, d)
    centers = sample[:n_clusters].clone()
    for _ in range(n_iter):
        cell = nearest_center(sample, centers)
        sums = torch.zeros_like(centers).index_add_(0, cell, sample)
        sizes = torch.bincount(cell, minlength=n_clusters)[:, None]  # (k, 1)
        centers = torch.where(sizes > 0, sums / sizes.clamp_min(1), centers)
    return centers


def nearest_center(points: Tensor, centers: Tensor) -> Tensor:
    """The index of the centre nearest to each point, shape (n,)."""
    norms = centers.square().sum(dim=1)
    block_size = max(1, BLOCK // len(centers))
    # Answers have their place before the first block: left between blocks, they would keep the heap from reusing it.
    cell = torch.empty(len(points), dtype=torch.long, device=points.device)
    for output, block in zip(torch.split(cell, block_size), torch.split(points, block_size), strict=True):
        output.copy_(squared_distances_to(block, centers, norms).argmin(dim=1))
    return cell


def exact_neighbors(
    queries: Tensor, points: Tensor, n_neighbors: int, exclude_self: bool = False
) -> tuple[Tensor, Tensor]:
    """The k nearest points of each query, exactly, a block of queries at a time.

    Args:
        queries: shape (q, d).
        points: shape (n, d), n >= k.
        n_neighbors: how many.
        exclude_self: query i is point i, and not its own neighbour.

    Returns:
        Indices and Euclidean distances, both of shape (q, k), nearest first.
    """
    index = torch.empty(len(queries), n_neighbors, dtype=torch.long, device=queries.device)
    distance = queries.new_empty(len(queries), n_neighbors)
    if n_neighbors == 0:
        return index, distance
    norms = points.square().sum(dim=1)  # (n,)
    block_size = max(1, BLOCK // max(len(points), n_neighbors * queries.shape[1]))
    for rows in torch.split(torch.arange(len(queries), device=queries.device), block_size):
        block, self_index = queries[rows], rows if exclude_self else None
        index[rows], distance[rows] = _nearest_block(block, points, norms, n_neighbors, self_index)
        # Where the neighbours are close and the origin is far, the ranking's float32 cannot tell them apart.
        imprecise = rows[distance[rows, -1].square() < MIN_RELATIVE_SQUARE * block.square().sum(dim=1)]
        exact = points.double() if len(imprecise) else points
        for rows_again in torch.split(imprecise, max(1, block_size // 2)):
            if len(rows_again):
                self_index = rows_again if exclude_self else None
                nearest, distances = _nearest_block(
                    queries[rows_again].double(), exact, exact.square().sum(dim=1), n_neighbors, self_index
                )
                index[rows_again], distance[rows_again] = nearest, distances.to(distance)
    return index, distance


def _nearest_block(
    queries: Tensor, points: Tensor, norms: Tensor, n_neighbors: int, self_index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return `exact_neighbors` of one block of queries, except the points at `self_index`, shape (b,)."""
    ranking = squared_distances_to(queries, points, norms)  # (b, n)
    if self_index is not None:
        ranking.scatter_(1, self_index[:, None], torch.inf)
    nearest = topk_smallest(ranking, n_neighbors)  # (b, k)
    # What is good enough to rank is not good enough for a kernel: distances are taken from differences.
    distance, order = (points[nearest] - queries[:, None]).square_().sum(dim=2).sqrt_().sort(dim=1)  # (b, k)
    return nearest.gather(1, order), distance


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
    width = columns // GROUP_SIZE
    if width <= 2 * k:
        return values.topk(k, dim=1, largest=False, sorted=False).indices
    # Group g holds columns g, g + width, g + 2 width...: the minimum then runs along contiguous memory.
    minima = values[:, : GROUP_SIZE * width].reshape(rows, GROUP_SIZE, width).amin(dim=1)  # (r, width)
    groups = minima.topk(k, dim=1, largest=False, sorted=False).indices  # (r, k)
    steps = torch.arange(0, GROUP_SIZE * width, width, device=values.device)
    candidates = (groups[:, :, None] + steps).reshape(rows, -1)  # (r, k GROUP)
    rest = torch.arange(GROUP_SIZE * width, columns, device=values.device).expand(rows, -1)
    candidates = torch.cat([candidates, rest], dim=1)
    best = values.gather(1, candidates).topk(k, dim=1, largest=False, sorted=False).indices
    return candidates.gather(1, best)


# Where cells begin to pay for themselves, measured on two cores and on an H200.
EXACT_UP_TO = {"cpu": 10_000, "cuda": 200_000}
MAX_PROBED_FRACTION = 0.2  # share of the cells of each partition beyond which comparing with all points is faster
RECALL_SAMPLE_SIZE = 512  # queries answered exactly: recall is known to about one percent


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
        n_neighbors: how many neighbours are wanted, 0 to n.
        recall: the share of true neighbours to find. Below 1, large sets are searched in the cells of two partitions,
            and as many cells are visited as a sample of exact answers says are needed; 1 is exact for every n.
    """

    def __init__(self, points: Tensor, n_neighbors: int, recall: float = 0.97) -> None:
        if not 0 <= n_neighbors <= len(points):
            raise ValueError(f"{n_neighbors} neighbours asked of {len(points)} points; expected 0 to {len(points)}")
        if not 0 < recall <= 1:
            raise ValueError(f"recall is {recall}; expected a share above 0 and up to 1")
        # In units of their spread around their mean, float32 serves all data without extreme outliers: where points lie
        # far from 0, |a|^2 + |b|^2 - 2ab does not cancel, and nothing overflows.
        self.mean = points.mean(dim=0, keepdim=True)  # (1, d)
        self.scale = _max_abs(points - self.mean)
        self.points = self._scaled(points)
        self.n_neighbors = n_neighbors
        self.recall = recall
        exact_up_to = EXACT_UP_TO.get(points.device.type, EXACT_UP_TO["cpu"])
        self.exact = recall == 1 or len(points) <= max(exact_up_to, n_neighbors + 1)

    def __getstate__(self) -> dict[str, object]:
        # What was fitted on a GPU can be loaded where there is none; cells are quickly made again.
        state = {name: value for name, value in self.__dict__.items() if name != "_indexes"}
        return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}

    def _scaled(self, points: Tensor) -> Tensor:
        return ((points.to(self.mean) - self.mean) / self.scale).float()

    @cached_property
    def _indexes(self) -> tuple[IVFIndex, IVFIndex] | None:
        """Two partitions that are visited as often as it takes for both together to reach the recall, if that pays.

        What one of them misses is not spread evenly: a cell may cut a few points off from their own kind altogether,
        and a graph that lacks these edges falls apart. What one partition separates the other keeps together.
        """
        indexes = IVFIndex(self.points, self.n_neighbors, seed=0), IVFIndex(self.points, self.n_neighbors, seed=1)
        sampled = torch.randperm(len(self.points), generator=torch.Generator().manual_seed(0))[:RECALL_SAMPLE_SIZE]
        sample = sampled.to(self.points.device)
        exact, _ = exact_neighbors(
            self.points[sample], self.points, self.n_neighbors + 1
        )  # (s, k + 1), themselves included
        rank = torch.stack([cells.probe_ranks(sample, exact) for cells in indexes]).amin(dim=0)
        others = rank[exact != sample[:, None]]
        recall_at = torch.bincount(others, minlength=int(others.max()) + 1).cumsum(0) / len(
            others
        )  # recall of 1, 2, ...
        n_probes = int(torch.searchsorted(recall_at, self.recall)) + 1
        if n_probes > MAX_PROBED_FRACTION * min(len(cells.centers) for cells in indexes):
            return None
        for cells in indexes:
            cells.n_probes = n_probes
        return indexes

    def query_self(self) -> Neighbors:
        """The k nearest other points of every point, or all of them if there are fewer.

        No point is its own neighbour; duplicates are each other's.
        """
        if self.exact or self._indexes is None:
            others = min(self.n_neighbors, max(0, len(self.points) - 1))
            return self._rescale(*exact_neighbors(self.points, self.points, others, exclude_self=True))
        first, second = self._indexes
        return self._rescale(*_merge(first.query_self(), second.query_self()))

    def query(self, queries: Tensor) -> Neighbors:
        """The k nearest points of each query, shape (q, d)."""
        queries = self._scaled(queries)
        if self.exact or self._indexes is None:
            return self._rescale(*exact_neighbors(queries, self.points, self.n_neighbors))
        first, second = self._indexes
        return self._rescale(*_merge(first.query(queries), second.query(queries)))

    def _rescale(self, index: Tensor, distance: Tensor) -> Neighbors:
        return Neighbors(index, distance.to(self.mean) * self.scale)


def _merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The k nearest of two answers to the same queries, nearest first, in the memory of the first answer."""
    (index, distance), (more_index, more_distance), n_neighbors = first, second, first[0].shape[1]
    for rows in torch.split(
        torch.arange(len(index), device=index.device), max(1, BLOCK // max(1, n_neighbors * n_neighbors))
    ):
        duplicate = (more_index[rows][:, :, None] == index[rows][:, None, :]).any(dim=2)  # (b, k), found by both
        merged = torch.cat([distance[rows], more_distance[rows].masked_fill(duplicate, torch.inf)], dim=1)  # (b, 2k)
        distance[rows], order = merged.topk(n_neighbors, dim=1, largest=False)
        index[rows] = torch.cat([index[rows], more_index[rows]], dim=1).gather(1, order)
    return index, distance


def _max_abs(values: Tensor) -> Tensor:
    largest = values.abs().amax() if values.numel() else values.new_ones(())
    return torch.where(largest > 0, largest, torch.ones_like(largest))
