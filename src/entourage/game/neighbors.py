"""Nearest-neighbour search: exact for few points, with two inverted file (IVF) indexes for many.

All work is matrix products and selections in torch, so that the same code uses all cores or a GPU, and no temporary
array exceeds BLOCK numbers. `python -m benchmarks.label_neighbours` compares it with scikit-learn and faiss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 2**23  # numbers in the largest temporary array: 32 MB, which fit into a large cache
MAX_CELL_SIZE = 512  # measured: smaller cells cost overhead, larger ones comparisons with distant points
BRANCHES = 64  # maximum number of cells that one k-means split makes
MAX_PROBES = 1024  # length of the probe order of a cell
# Squared distance over squared norm below which cancellation in float32 costs half of the digits or more.
MIN_RELATIVE_SQUARE = 2.0**-11
GROUP_SIZE = 16  # entries per group in the first stage of `topk_smallest`


class IVFIndex:
    """Inverted file index: points in cells of nearby points, searched for k neighbours.

    Points are split by k-means, recursively, into cells of about sqrt(n) points, at most MAX_CELL_SIZE. A query is
    compared with the points of its own cell and of the nearest other cells. All queries of a cell share their
    candidates, so that their distances are one matrix product: several times faster than one inverted list per query.

    Building costs O(n log n) time and O(n d) memory.

    Args:
        points: shape (n, d).
        n_neighbors: number of neighbours to find.
        n_probes: number of cells to search per query; more if they hold fewer than k other points.
        seed: random seed of the cells.
    """

    def __init__(self, points: Tensor, n_neighbors: int, n_probes: int = 1, seed: int = 0) -> None:
        self.n_neighbors = n_neighbors
        self.n_probes = n_probes
        self.cell = partition(points, seed)  # (n,)
        sizes = torch.bincount(self.cell)
        self.order = torch.argsort(self.cell, stable=True)  # (n,), index in cell order -> index in `points`
        self.sorted = points[self.order]
        ends = sizes.cumsum(0)
        self.starts, self.ends = (ends - sizes).tolist(), ends.tolist()
        self.centers = torch.zeros(len(sizes), points.shape[1]).to(points)
        self.centers = self.centers.index_add_(0, self.cell, points) / sizes[:, None]
        self.probe_order = self._probe_order()

    def query_self(self) -> tuple[Tensor, Tensor]:
        """Return indices and distances of the k nearest other points of every point, both (n, k), nearest first."""
        return self._search(self.sorted, [e - s for s, e in zip(self.starts, self.ends, strict=True)], self.order, True)

    def query(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return indices and distances of the k nearest points of each query, both (q, k), nearest first."""
        cell = nearest_center(queries, self.centers)  # (q,)
        order = torch.argsort(cell, stable=True)
        return self._search(queries[order], torch.bincount(cell, minlength=len(self.centers)).tolist(), order, False)

    def _search(self, queries: Tensor, sizes: list[int], order: Tensor, exclude_self: bool) -> tuple[Tensor, Tensor]:
        """Search for queries sorted by cell, `sizes` of them per cell; row `order[i]` of the result is query i."""
        index = torch.empty(len(queries), self.n_neighbors, dtype=torch.long, device=queries.device)
        distance = queries.new_empty(len(queries), self.n_neighbors)
        for cell, (block, rows) in enumerate(zip(torch.split(queries, sizes), torch.split(order, sizes), strict=True)):
            if len(block):
                candidates = self._candidates(cell)  # (c,), in cell order, those of this cell first
                # Centred on the block, float32 resolves a cell far from the origin, too.
                mean = block.mean(dim=0, keepdim=True)
                index_in_block, distances = exact_neighbors(
                    block - mean, self.sorted[candidates].sub_(mean), self.n_neighbors, exclude_self
                )
                index[rows], distance[rows] = self.order[candidates[index_in_block]], distances
        return index, distance

    def _candidates(self, cell: int) -> Tensor:
        """Return the points of the first `n_probes` cells, and of more while these hold too few points."""
        ranges, count = [], 0
        for rank, other in enumerate(self.probe_order[cell].tolist()):
            if rank >= self.n_probes and count > self.n_neighbors:
                break
            start, end = self.starts[other], self.ends[other]
            ranges.append(torch.arange(start, end, device=self.sorted.device))
            count += end - start
        return torch.cat(ranges)

    def _probe_order(self) -> Tensor:
        """Return the nearest cells of each cell, itself first, shape (cells, at most MAX_PROBES)."""
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
        """Return the number of cells that are searched before the cell of each neighbour.

        A sample of exact answers thus yields the recall of every number of probes at once.

        Args:
            queries: indices of points, shape (q,).
            neighbors: indices of their neighbours, shape (q, k).

        Returns:
            Ranks, shape (q, k); the length of the probe order for a cell that is not in it.
        """
        order = self.probe_order[self.cell[queries]]  # (q, v)
        probe_ranks = torch.full_like(neighbors, order.shape[1])
        for rows in torch.split(torch.arange(len(queries), device=neighbors.device), 64):
            same_cell = self.cell[neighbors[rows]][:, :, None] == order[rows][:, None, :]  # (64, k, v)
            probe_ranks[rows] = torch.where(same_cell.any(dim=2), same_cell.int().argmax(dim=2), order.shape[1])
        return probe_ranks


def partition(points: Tensor, seed: int = 0) -> Tensor:
    """Split points by recursive k-means into cells of similar size; equal points share a cell.

    Args:
        points: shape (n, d).
        seed: random seed.

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
    """Compute centres by a few iterations of Lloyd's algorithm on a random sample.

    Args:
        points: shape (n, d), n >= k.
        n_clusters: number of centres k.
        n_iter: number of iterations.
        samples_per_center: size of the sample, divided by k.
        seed: random seed of the sample.

    Returns:
        Centres, shape (k, d). The centre of an empty cluster does not move.
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
    """Return the index of the nearest centre of each point, shape (n,)."""
    norms = centers.square().sum(dim=1)
    block_size = max(1, BLOCK // len(centers))
    # Allocated before the first block: results allocated between blocks would fragment the heap.
    cell = torch.empty(len(points), dtype=torch.long, device=points.device)
    for output, block in zip(torch.split(cell, block_size), torch.split(points, block_size), strict=True):
        output.copy_(squared_distances_to(block, centers, norms).argmin(dim=1))
    return cell


def exact_neighbors(
    queries: Tensor, points: Tensor, n_neighbors: int, exclude_self: bool = False
) -> tuple[Tensor, Tensor]:
    """Find the k nearest points of each query by comparing all pairs, one block of queries at a time.

    Args:
        queries: shape (q, d).
        points: shape (n, d), n >= k.
        n_neighbors: number of neighbours k.
        exclude_self: the queries are the points, and no point is its own neighbour.

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
        # Neighbours that are much closer than the origin are ranked again in float64.
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
    """Find the neighbours of one block of queries, except the points at `self_index`, shape (b,)."""
    ranking = squared_distances_to(queries, points, norms)  # (b, n)
    if self_index is not None:
        ranking.scatter_(1, self_index[:, None], torch.inf)
    nearest = topk_smallest(ranking, n_neighbors)  # (b, k)
    # Products are accurate enough to rank, but not for a kernel: the distances are computed from differences.
    distance, order = (points[nearest] - queries[:, None]).square_().sum(dim=2).sqrt_().sort(dim=1)  # (b, k)
    return nearest.gather(1, order), distance


def squared_distances_to(queries: Tensor, points: Tensor, norms: Tensor) -> Tensor:
    """Compute |p|^2 - 2 qp, shape (q, n): squared distances without the norm of the query, which ranks equally."""
    return torch.addmm(norms[None, :], queries, points.T, alpha=-2)


def topk_smallest(values: Tensor, k: int) -> Tensor:
    """Return the indices of the k smallest entries of each row, unordered; faster than torch.topk on long rows.

    The k smallest lie within the k groups of smallest minimum, so that only these are searched. Exact.

    Args:
        values: shape (r, c), c >= k.
        k: number of entries.

    Returns:
        Column indices, shape (r, k).
    """
    rows, columns = values.shape
    width = columns // GROUP_SIZE
    if width <= 2 * k:
        return values.topk(k, dim=1, largest=False, sorted=False).indices
    # Group g holds columns g, g + width, g + 2 width...: the minimum is over contiguous memory.
    minima = values[:, : GROUP_SIZE * width].reshape(rows, GROUP_SIZE, width).amin(dim=1)  # (r, width)
    groups = minima.topk(k, dim=1, largest=False, sorted=False).indices  # (r, k)
    steps = torch.arange(0, GROUP_SIZE * width, width, device=values.device)
    candidates = (groups[:, :, None] + steps).reshape(rows, -1)  # (r, k GROUP_SIZE)
    rest = torch.arange(GROUP_SIZE * width, columns, device=values.device).expand(rows, -1)
    candidates = torch.cat([candidates, rest], dim=1)
    best = values.gather(1, candidates).topk(k, dim=1, largest=False, sorted=False).indices
    return candidates.gather(1, best)


# Sizes up to which exact search is faster, measured on two cores and on an H200.
EXACT_UP_TO = {"cpu": 10_000, "cuda": 200_000}
MAX_PROBED_FRACTION = 0.2  # fraction of the cells of each index beyond which exact search is faster
RECALL_SAMPLE_SIZE = 512  # exact queries: they estimate the recall to about one percent


@dataclass(frozen=True)
class Neighbors:
    """The k nearest points of each query, nearest first.

    Attributes:
        index: indices of the points, shape (q, k), int64.
        distance: Euclidean distances, shape (q, k), in the dtype of the points.
    """

    index: Tensor
    distance: Tensor


class NeighborSearch:
    """Search for the nearest points of a set.

    Distances are resolved to about 1e-7 of the largest distance from the mean. If a few outliers are more than 1e4
    times farther from the mean than the other points are from each other, neighbours among these begin to be missed.

    Args:
        points: shape (n, d), finite; the search runs on their device, in float32.
        n_neighbors: number of neighbours, 0 to n.
        recall: fraction of the true neighbours to find. Below 1, large sets are searched with two IVF indexes; a sample
            of exact queries determines the number of cells to search. 1 is exact for every n.

    Raises:
        ValueError: the number of neighbours or the recall is out of range.
    """

    def __init__(self, points: Tensor, n_neighbors: int, recall: float = 0.97) -> None:
        if not 0 <= n_neighbors <= len(points):
            raise ValueError(f"n_neighbors is {n_neighbors}; expected 0 to {len(points)}, the number of points")
        if not 0 < recall <= 1:
            raise ValueError(f"recall is {recall}; expected a fraction above 0 and at most 1")
        # Points are centred and scaled to [-1, 1]: |a|^2 + |b|^2 - 2ab then does not cancel far from the origin, and
        # nothing overflows in float32.
        self.mean = points.mean(dim=0, keepdim=True)  # (1, d)
        self.scale = _max_abs(points - self.mean)
        self.points = self._scaled(points)
        self.n_neighbors = n_neighbors
        self.recall = recall
        exact_up_to = EXACT_UP_TO.get(points.device.type, EXACT_UP_TO["cpu"])
        self.exact = recall == 1 or len(points) <= max(exact_up_to, n_neighbors + 1)

    def __len__(self) -> int:
        return len(self.points)

    def __getstate__(self) -> dict[str, object]:
        # Tensors are stored for a CPU; the indexes are quick to rebuild.
        state = {name: value for name, value in self.__dict__.items() if name != "_indexes"}
        return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}

    def _scaled(self, points: Tensor) -> Tensor:
        return ((points.to(self.mean) - self.mean) / self.scale).float()

    @cached_property
    def _indexes(self) -> tuple[IVFIndex, IVFIndex] | None:
        """Two indexes whose merged results reach the recall, or None if exact search is faster.

        The misses of a single index are not spread evenly: a cell may separate a few points from all of their
        neighbours, which disconnects the graph. A second partition has other cell borders.
        """
        indexes = IVFIndex(self.points, self.n_neighbors, seed=0), IVFIndex(self.points, self.n_neighbors, seed=1)
        sampled = torch.randperm(len(self.points), generator=torch.Generator().manual_seed(0))[:RECALL_SAMPLE_SIZE]
        sample = sampled.to(self.points.device)
        exact, _ = exact_neighbors(self.points[sample], self.points, self.n_neighbors + 1)  # (s, k + 1), with itself
        rank = torch.stack([cells.probe_ranks(sample, exact) for cells in indexes]).amin(dim=0)
        others = rank[exact != sample[:, None]]
        counts = torch.bincount(others, minlength=int(others.max()) + 1)
        recall_at = counts.cumsum(0) / len(others)  # recall of 1, 2, ... probes
        n_probes = int(torch.searchsorted(recall_at, self.recall)) + 1
        if n_probes > MAX_PROBED_FRACTION * min(len(cells.centers) for cells in indexes):
            return None
        for cells in indexes:
            cells.n_probes = n_probes
        return indexes

    @property
    def order(self) -> Tensor | None:
        """Indices of all points, cell by cell, shape (n,): most neighbours are close in it; None without cells."""
        return None if self.exact or self._indexes is None else self._indexes[0].order

    def query_self(self) -> Neighbors:
        """Return the k nearest other points of every point, or all n - 1 if there are fewer.

        No point is its own neighbour; duplicates are neighbours of each other.
        """
        if self.exact or self._indexes is None:
            others = min(self.n_neighbors, max(0, len(self.points) - 1))
            return self._rescale(*exact_neighbors(self.points, self.points, others, exclude_self=True))
        first, second = self._indexes
        return self._rescale(*_merge(first.query_self(), second.query_self()))

    def query(self, queries: Tensor) -> Neighbors:
        """Return the k nearest points of each query, shape (q, d)."""
        queries = self._scaled(queries)
        if self.exact or self._indexes is None:
            return self._rescale(*exact_neighbors(queries, self.points, self.n_neighbors))
        first, second = self._indexes
        return self._rescale(*_merge(first.query(queries), second.query(queries)))

    def group_copies(self) -> NDArray[np.int64]:
        """Return the index of the first point that equals each point, shape (n,). Costs O(n d log n)."""
        _, group = torch.unique(self.points, dim=0, return_inverse=True)  # (n,)
        n, device = len(group), group.device
        first = torch.full((int(group.max()) + 1,), n, dtype=torch.long, device=device)
        first.scatter_reduce_(0, group, torch.arange(n, device=device), "amin")
        return np.asarray(first[group].cpu().numpy())

    def select(self, indices: NDArray[np.int64], n_neighbors: int) -> NeighborSearch:
        """Return a search among some of the points."""
        chosen = self.points[torch.from_numpy(indices).to(self.points.device)]
        return NeighborSearch(chosen.to(self.mean) * self.scale + self.mean, n_neighbors, self.recall)

    def _rescale(self, index: Tensor, distance: Tensor) -> Neighbors:
        return Neighbors(index, distance.to(self.mean) * self.scale)


def _merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Merge two results of the same queries into the k nearest, nearest first, in the memory of the first result."""
    (index, distance), (more_index, more_distance), n_neighbors = first, second, first[0].shape[1]
    block_size = max(1, BLOCK // max(1, n_neighbors * n_neighbors))
    for rows in torch.split(torch.arange(len(index), device=index.device), block_size):
        duplicate = (more_index[rows][:, :, None] == index[rows][:, None, :]).any(dim=2)  # (b, k), in both results
        merged = torch.cat([distance[rows], more_distance[rows].masked_fill(duplicate, torch.inf)], dim=1)  # (b, 2k)
        distance[rows], order = merged.topk(n_neighbors, dim=1, largest=False)
        index[rows] = torch.cat([index[rows], more_index[rows]], dim=1).gather(1, order)
    return index, distance


def _max_abs(values: Tensor) -> Tensor:
    largest = values.abs().amax() if values.numel() else values.new_ones(())
    return torch.where(largest > 0, largest, torch.ones_like(largest))
