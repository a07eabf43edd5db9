"""Candidate partitions of a table, by several methods and for all numbers of clusters.

Each method computes a partition for every k. A network decides which partition is right, see `scorer`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.spatial.distance import squareform

from entourage.cluster.tables.prepare import Floats, Labels, PreparedTable

LLOYD_STEPS = 20
EM_STEPS = 20
MANY_CLUSTERS = 24  # more clusters are proposed by some of the methods only, to save time
DIFFUSION_STEPS = 8  # power of the eigenvalues
N_CORE = 5  # neighbour whose distance is the core distance of an item
TIE = 1e-3  # fraction of the distance added to reachability distances, which are often equal
N_GRAPH = 10  # neighbours of an item in the graph of spectral methods
RIDGE = 0.02  # fraction of the pooled variance added to covariances
DENSE_EIGEN = 400  # up to this many items, all eigenvectors are computed


@dataclass(frozen=True)
class Candidate:
    """A partition that a method proposes.

    Attributes:
        methods: names of the methods that propose it, of `METHODS`.
        k: number of clusters.
        labels: cluster of each item, shape (n,), from 0 to k - 1, all present.
    """

    methods: tuple[str, ...]
    k: int
    labels: Labels


def propose(table: PreparedTable, k_max: int) -> list[Candidate]:
    """Compute the candidate partitions of a table.

    Args:
        table: prepared items.
        k_max: maximum number of clusters.

    Returns:
        Distinct partitions into 1 to k_max clusters, with the methods that propose them. Costs O(n^2 (d + log n))
        time, O(n k^2) for each spectral or mixture partition, and O(n^2) memory.
    """
    k_max = min(k_max, len(table) - 1)
    found: dict[bytes, Candidate] = {}
    ward = _ward_labels(table.z, k_max)
    for name, (method, many) in METHODS.items():
        limit = k_max if many else min(k_max, MANY_CLUSTERS)
        for proposed in method(table, ward[:limit], limit):
            labels = relabel(proposed)
            k = int(labels.max()) + 1
            if k <= k_max:
                key = labels.tobytes()
                methods = found[key].methods if key in found else ()
                found[key] = Candidate((*methods, name), k, labels)
    return sorted(found.values(), key=lambda candidate: candidate.k)


def relabel(labels: Labels) -> Labels:
    """Renumber clusters from 0 in the order of their first items."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse])


def _ward_labels(z: Floats, k_max: int) -> list[Labels]:
    """Return Ward's partitions into 1 to k_max clusters."""
    tree = linkage(z, "ward")
    return list(cut_tree(tree, np.arange(1, k_max + 1)).T.astype(np.int64))


def _ward(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    yield from ward


def k_means(z: Floats, labels: Labels) -> Labels:
    """Improve a partition by Lloyd's iterations; the number of clusters is unchanged or decreases."""
    for _ in range(LLOYD_STEPS):
        members = one_hot(labels)
        centers = (members.T @ z) / np.maximum(members.sum(0), 1)[:, None]  # (k, d)
        squared = (centers**2).sum(1) - 2 * z @ centers.T  # (n, k), up to a constant per item
        updated = squared.argmin(1)
        if np.array_equal(updated, labels):
            break
        labels = updated
    return labels


def one_hot(labels: Labels, k: int | None = None) -> Floats:
    """Return the membership matrix, shape (n, k)."""
    members = np.zeros((len(labels), int(labels.max()) + 1 if k is None else k))
    members[np.arange(len(labels)), labels] = 1
    return members


def _k_means(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    for labels in ward[1:]:
        yield k_means(table.z, labels)


def _principal_k_means(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Cluster the leading components, in which irrelevant columns matter less."""
    if table.principal.shape[1] < table.z.shape[1]:
        for labels in _ward_labels(table.principal, k_max)[1:]:
            yield k_means(table.principal, labels)


def _mixture(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    for labels in ward[1:]:
        yield gaussian_mixture(table.principal, k_means(table.z, labels))


def gaussian_mixture(z: Floats, labels: Labels) -> Labels:
    """Fit a mixture of Gaussians by expectation maximisation, starting from a partition.

    Args:
        z: coordinates, shape (n, d), d small.
        labels: initial partition, shape (n,).

    Returns:
        The most probable Gaussian of each item. Costs O(n k d^2) per iteration.
    """
    n, d = z.shape
    ridge = RIDGE * z.var(0).mean() / max(2, labels.max() + 1) + 1e-9
    resp = one_hot(labels)
    outer = (z[:, :, None] * z[:, None, :]).reshape(n, d * d)
    previous = labels
    for step in range(EM_STEPS):
        weight = resp.sum(0) + 1e-9  # (k,)
        mean = (resp.T @ z) / weight[:, None]  # (k, d)
        cov = (resp.T @ outer).reshape(-1, d, d) / weight[:, None, None] - mean[:, :, None] * mean[:, None, :]
        # Clusters of few items borrow the mean covariance: a flat cluster would have infinite likelihood.
        pooled = (weight[:, None, None] * cov).sum(0) / n
        share = d / (d + weight)[:, None, None]
        cov = (1 - share) * cov + share * pooled + ridge * np.eye(d)
        root = np.linalg.cholesky(cov)  # (k, d, d)
        inverse = np.linalg.inv(root)
        scaled = (z - mean[:, None]) @ inverse.transpose(0, 2, 1)  # (k, n, d)
        constant = np.log(weight / n) - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        log = (constant[:, None] - 0.5 * (scaled**2).sum(2)).T  # (n, k)
        resp = np.exp(log - log.max(1, keepdims=True))
        resp /= resp.sum(1, keepdims=True)
        if step % 4 == 3:
            current = resp.argmax(1)
            if np.array_equal(current, previous):
                break
            previous = current
    return np.asarray(resp.argmax(1))


def _average(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    yield from split_tree(table, linkage(table.condensed, "average"), k_max, min_cluster_size(len(table)))


def _density_linkage(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Single linkage of mutual reachability distances, without small clusters, as in HDBSCAN."""
    yield from _linkage_of_reach(table, k_max, N_CORE)


def _single(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Single linkage without small clusters: thin curves that density would smooth."""
    yield from _linkage_of_reach(table, k_max, 1)


def _linkage_of_reach(table: PreparedTable, k_max: int, n_core: int) -> Iterator[Labels]:
    core = table.neighbor_distances[:, :n_core][:, -1]
    reach = np.maximum(table.distances, np.maximum(core[:, None], core)) + TIE * table.distances
    np.fill_diagonal(reach, 0)
    tree = linkage(squareform(reach, checks=False), "single")
    yield from split_tree(table, tree, k_max, min_cluster_size(len(table)))


def min_cluster_size(n: int) -> int:
    """Return the size below which a branch of a tree is noise: 1.5 % of the items, 3 or more."""
    return max(3, round(0.015 * n))


def split_tree(table: PreparedTable, tree: Floats, k_max: int, min_size: int) -> Iterator[Labels]:
    """Split a tree of clusters from its root, highest split first, ignoring branches of fewer than min_size items.

    Items of ignored branches are assigned to the cluster of the nearest other item.
    """
    n = len(table)
    children, height = tree[:, :2].astype(np.int64), tree[:, 2]
    size = np.concatenate([np.ones(n), tree[:, 3]])
    top = 2 * n - 2
    heap = [(-height[-1], top)]
    leaves: set[int] = set()  # clusters that cannot be split
    members = _tree_members(children, n)
    while heap and len(heap) + len(leaves) < k_max:
        _, node = heapq.heappop(heap)
        left, right = children[node - n]
        big = [int(child) for child in (left, right) if size[child] >= min_size]
        for child in big:
            if child >= n:
                heapq.heappush(heap, (-height[child - n], child))
            else:
                leaves.add(child)
        if not big:
            leaves.add(int(node))
        if len(big) == 2:
            labels = np.full(n, -1)
            for number, cluster in enumerate(sorted([*(node for _, node in heap), *leaves])):
                labels[members(cluster)] = number
            yield assign_rest(table, labels)


def _tree_members(children: Labels, n: int) -> Callable[[int], Labels]:
    """Return a function from a node of a tree to its items, from an order in which they are contiguous."""
    start, stop = np.zeros(2 * n - 1, dtype=np.int64), np.zeros(2 * n - 1, dtype=np.int64)
    order: list[int] = []
    stack = [(2 * n - 2, False)]
    while stack:
        node, done = stack.pop()
        if done:
            stop[node] = len(order)
            continue
        start[node] = len(order)
        if node < n:
            order.append(node)
            stop[node] = len(order)
        else:
            stack += [(node, True), (int(children[node - n, 1]), False), (int(children[node - n, 0]), False)]
    items = np.array(order)
    return lambda node: items[start[node] : stop[node]]


def assign_rest(table: PreparedTable, labels: Labels) -> Labels:
    """Assign items of label -1 to the cluster of the nearest item that has one."""
    rest, known = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
    if len(rest):
        labels = labels.copy()
        labels[rest] = labels[known[table.distances[np.ix_(rest, known)].argmin(1)]]
    return labels


def _density_peaks(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Merge the basins of density peaks in the order of their prominence (persistence-based clustering)."""
    n, density = len(table), table.log_density
    near = table.neighbors[:, : table.n_density]
    order = np.argsort(-density, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    basin, parent = np.full(n, -1), np.arange(n)
    merges: list[tuple[float, int, int]] = []

    def find(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return int(item)

    for item in order:
        higher = near[item][rank[near[item]] < rank[item]]
        if not len(higher):
            basin[item] = item
            continue
        basin[item] = basin[higher[rank[higher].argmin()]]
        roots = sorted({find(int(basin[other])) for other in higher}, key=lambda root: rank[root])
        for root in roots[1:]:
            merges.append((float(density[root] - density[item]), root, roots[0]))
            parent[root] = roots[0]
    free = sorted({find(int(root)) for root in np.unique(basin)}, key=lambda root: rank[root])
    # Components without connection are merged last, smallest peaks first.
    merges += [(np.inf, root, free[0]) for root in free[:0:-1]]
    merges.sort(key=lambda merge: merge[0])
    yield from reversed(_merge_basins(basin, merges, k_max))


def _merge_basins(basin: Labels, merges: list[tuple[float, int, int]], k_max: int) -> list[Labels]:
    """Return partitions with at most k_max clusters, most clusters first."""
    target = {int(root): int(root) for root in np.unique(basin)}
    results = []
    for done in range(len(merges)):
        if len(merges) - done + 1 <= k_max:
            results.append(np.array([target[int(root)] for root in basin]))
        _, child, into = merges[done]
        old, new = target[child], target[into]
        target = {root: new if at == old else at for root, at in target.items()}
    return results


def _eigenvectors(table: PreparedTable, count: int, n_neighbors: int) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues and eigenvectors of the normalised neighbour graph, largest first."""
    near = table.neighbors[:, :n_neighbors]
    n, m = near.shape
    scale = np.maximum(table.neighbor_distances[:, : min(7, m)][:, -1], 1e-9)
    exponent = table.neighbor_distances[:, :m] ** 2 / (scale[:, None] * scale[near])
    values = np.exp(-exponent / 2).ravel() + 1e-6
    directed = sparse.csr_matrix((values, near.ravel(), np.arange(0, n * m + 1, m)), shape=(n, n))
    symmetric = (directed + directed.T) / 2
    degree = np.sqrt(np.asarray(symmetric.sum(1)).ravel())
    w = sparse.csr_matrix(sparse.diags(1 / degree) @ symmetric @ sparse.diags(1 / degree))
    if n > DENSE_EIGEN and 3 * count < n:
        try:
            start = np.asarray(np.random.default_rng(0).normal(size=n))
            largest, vectors = eigsh(w, count, None, None, "LA", start, tol=1e-4)
            return largest[::-1], vectors[:, ::-1]
        except ArpackError:  # no convergence; all eigenvectors are computed instead
            pass
    largest, vectors = linalg.eigh(w.toarray(), subset_by_index=[n - count, n - 1])
    return largest[::-1], vectors[:, ::-1]


def _spectral_labels(table: PreparedTable, k_max: int, n_neighbors: int) -> Iterator[Labels]:
    _, vectors = _eigenvectors(table, min(k_max, len(table) - 1), n_neighbors)
    for k in range(2, vectors.shape[1] + 1):
        leading = vectors[:, :k]
        unit = leading / np.maximum(np.linalg.norm(leading, axis=1, keepdims=True), 1e-12)
        yield k_means(unit, relabel(pivoted_qr_labels(leading)))


def _spectral(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    yield from _spectral_labels(table, k_max, N_GRAPH)


def _near_spectral(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Use few neighbours, so that thin curves stay separate."""
    yield from _spectral_labels(table, k_max, N_GRAPH // 2)


def _spectral_mixture(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    for labels in _spectral_labels(table, k_max, N_GRAPH):
        yield gaussian_mixture(table.principal, relabel(labels))


def pivoted_qr_labels(vectors: Floats) -> Labels:
    """Assign items by a pivoted QR factorisation of eigenvectors, shape (n, k) (Damle, Minden and Ying, 2018)."""
    pivots = linalg.qr(vectors.T, mode="r", pivoting=True)[1][: vectors.shape[1]]
    left, _, right = linalg.svd(vectors[pivots].T)
    return np.asarray(np.abs(vectors @ (left @ right.conj())).argmax(1))


def _diffusion(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Cluster diffusion coordinates by Ward's method."""
    values, vectors = _eigenvectors(table, min(16, len(table) - 1), N_GRAPH)
    degree = np.abs(vectors[:, :1]) + 1e-9
    coordinates = vectors / degree * np.clip(values, 0, 1) ** DIFFUSION_STEPS
    yield from _ward_labels(coordinates, k_max)[1:]


def _large_ward(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Split Ward's tree without small clusters."""
    yield from split_tree(table, linkage(table.z, "ward"), k_max, min_cluster_size(len(table)))


def _local_average(table: PreparedTable, ward: list[Labels], k_max: int) -> Iterator[Labels]:
    """Average linkage of distances relative to those of the neighbours, for clusters of different density."""
    core = np.sqrt(table.neighbor_distances[:, :N_CORE][:, -1])
    core = np.maximum(core, 1e-3 * core.max() + 1e-9)
    relative = table.distances / (core[:, None] * core)
    tree = linkage(squareform(relative, checks=False), "average")
    yield from split_tree(table, tree, k_max, min_cluster_size(len(table)))


Method = Callable[[PreparedTable, list[Labels], int], Iterator[Labels]]
# The second value: whether the method is also used for more than `MANY_CLUSTERS`.
METHODS: dict[str, tuple[Method, bool]] = {
    "ward": (_ward, True),
    "k-means": (_k_means, True),
    "principal k-means": (_principal_k_means, False),
    "mixture": (_mixture, False),
    "average": (_average, True),
    "density linkage": (_density_linkage, True),
    "density peaks": (_density_peaks, False),
    "spectral": (_spectral, True),
    "near spectral": (_near_spectral, False),
    "spectral mixture": (_spectral_mixture, False),
    "diffusion": (_diffusion, False),
    "single": (_single, True),
    "large ward": (_large_ward, False),
    "local average": (_local_average, True),
}
