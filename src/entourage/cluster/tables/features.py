"""Features of candidate partitions, by which a network recognises the right one.

All features are relative: to the spread of the whole set, to the neighbourhoods of items, or to the other candidates.
So they do not depend on units, and hardly on the number of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree

from entourage.cluster.tables.candidates import METHODS, TIE, Candidate, one_hot
from entourage.cluster.tables.prepare import Floats, Labels, PreparedTable

N_PAIRS = 4000  # random pairs of items by which candidates are compared
NEAR = (1, 3, 10)  # neighbours of which the fraction in the same cluster is a feature
MAX_DEPTH = 3.0  # of a valley of the log density; that of clusters without a connection
LIMIT = 20.0  # largest absolute value of a feature


@dataclass(frozen=True)
class CandidateFeatures:
    """Input of the scorer.

    Attributes:
        values: features of each candidate, shape (m, f).
        agreement: adjusted Rand index of all pairs of candidates, estimated on random pairs of items, shape (m, m).
        k: number of clusters of each candidate, shape (m,).
    """

    values: NDArray[np.float32]
    agreement: NDArray[np.float32]
    k: Labels


class _Context:
    """Quantities of a table that the features of all its candidates share."""

    def __init__(self, table: PreparedTable) -> None:
        n = len(table)
        self.table, self.n = table, n
        self.distances = table.distances.astype(np.float32)
        self.near = table.neighbors[:, :10]
        self.total = float(table.z.var(0).sum()) or 1.0
        variance = table.z.var(0)
        self.effective = float(variance.sum() ** 2 / max((variance**2).sum(), 1e-12))  # effective number of columns
        core = table.neighbor_distances[:, : min(5, n - 1)]
        self.scale = np.maximum(core.mean(1), 1e-6 + 1e-3 * float(np.median(core)))  # (n,)
        reach = np.maximum(table.distances, np.maximum(core[:, -1][:, None], core[:, -1]))
        reach = reach + TIE * table.distances + 1e-9
        np.fill_diagonal(reach, 0)
        tree = minimum_spanning_tree(reach).tocoo()
        self.edges = np.stack([tree.row, tree.col], 1)  # (n - 1, 2)
        length = np.log(np.maximum(tree.data, 1e-6))
        self.length = length
        self.relative = length - 0.5 * np.log(self.scale[tree.row] * self.scale[tree.col])
        ranks = np.argsort(np.argsort(length)) / max(len(length) - 1, 1)
        self.rank = ranks
        z = table.principal
        self.principal = z
        q = z.shape[1]
        self.outer = (z[:, :, None] * z[:, None, :]).reshape(n, q * q)
        self.ridge = 0.01 * z.var(0).mean() + 1e-9
        far = table.neighbor_distances[:, min(20, n - 1) - 1 : min(20, n - 1)].mean()
        self.local_dimension = float(
            np.log(max(min(20, n - 1), 2) / max(min(5, n - 1), 1))
            / max(np.log(far / max(core[:, -1].mean(), 1e-9)), 0.05)
        )
        near = table.neighbors[:, : table.n_density]
        self.row = np.repeat(np.arange(n), near.shape[1])
        self.column = near.ravel()
        self.saddle = np.minimum(table.log_density[self.row], table.log_density[self.column])

    def constant(self) -> list[float]:
        """Return features of the whole set."""
        density = self.table.log_density
        return [
            np.log(self.n) - 5,
            np.log(self.effective),
            np.log(min(self.local_dimension, 30.0)),
            float(density.std()),
            float(np.quantile(density, 0.9) - np.quantile(density, 0.1)),
            float(np.quantile(self.relative, 0.99)),
            float(self.relative.max()),
        ]


def describe(table: PreparedTable, candidates: Sequence[Candidate], seed: int = 0) -> CandidateFeatures:
    """Compute the features of all candidates of a table. Costs O(n^2 k) time per candidate."""
    context = _Context(table)
    rows = [_features_of(context, candidate) for candidate in candidates]
    own = np.array([row[0] for row in rows])  # (m, features)
    gain = np.array([row[1] for row in rows])  # (m, gains)
    k = np.array([candidate.k for candidate in candidates])
    agreement = pairwise_agreement([candidate.labels for candidate in candidates], seed)
    names = list(METHODS)
    methods = np.array([[name in candidate.methods for name in names] for candidate in candidates], dtype=float)
    constant = np.broadcast_to(context.constant(), (len(k), len(context.constant())))
    values = np.concatenate(
        [constant, own, gain, _relative_gains(gain, k), _agreement_features(agreement, k, methods), methods], axis=1
    )
    values = np.nan_to_num(values, nan=0.0, posinf=LIMIT, neginf=-LIMIT).clip(-LIMIT, LIMIT)
    return CandidateFeatures(values.astype(np.float32), agreement.astype(np.float32), k)


def _features_of(context: _Context, candidate: Candidate) -> tuple[list[float], list[float]]:
    """Return the features of a candidate, and those that are also compared with other candidates."""
    labels, k, n = candidate.labels, candidate.k, context.n
    members = one_hot(labels, k)
    size = members.sum(0)  # (k,)
    share = size / n
    entropy = float(-(share * np.log(share)).sum())
    sizes = [np.log(k), np.log(n / k) - 3, 1 / k, share.min() * k, entropy - np.log(k), share.max(), np.log(size.min())]
    scatter = _scatter(context, members, size)
    return [
        *sizes,
        *_silhouettes(context, labels, members, size),
        *_graph(context, labels, members, size),
        *_valleys(context, labels, k),
        *_tree_steps(context, labels, k),
        *_shapes(context, labels, members, size),
    ], scatter


def _summary(values: Floats, weight: Floats) -> list[float]:
    """Return minimum, lower quartile, and weighted mean."""
    ordered = np.sort(values)
    return [float(ordered[0]), float(ordered[(len(ordered) - 1) // 4]), float((values * weight).sum() / weight.sum())]


def _silhouettes(context: _Context, labels: Labels, members: Floats, size: Floats) -> list[float]:
    if len(size) == 1:
        return [0.0] * 5
    total = (context.distances @ members.astype(np.float32)).astype(np.float64)  # (n, k)
    items = np.arange(context.n)
    own = total[items, labels] / np.maximum(size[labels] - 1, 1)
    mean = total / size
    mean[items, labels] = np.inf
    other = mean.min(1)
    width = (other - own) / np.maximum(np.maximum(own, other), 1e-12)
    width = np.where(size[labels] > 1, width, 0)
    by_cluster = (members.T @ width) / size
    return [*_summary(by_cluster, size), float((width < 0).mean()), float(np.sort(width)[context.n // 10])]


def _scatter(context: _Context, members: Floats, size: Floats) -> list[float]:
    """Return log scatter and log likelihoods of Gaussians of three kinds, with their penalties, per item."""
    n, z, q = context.n, context.principal, context.principal.shape[1]
    k = len(size)
    whole = context.table.z
    mean = (members.T @ whole) / size[:, None]
    within = float((whole**2).sum() - (size[:, None] * mean**2).sum()) / n
    log_within = float(np.log(max(within / context.total, 1e-4)))
    center = (members.T @ z) / size[:, None]
    cov = (members.T @ context.outer).reshape(k, q, q) / size[:, None, None] - center[:, :, None] * center[:, None, :]
    pooled = (size[:, None, None] * cov).sum(0) / n
    share = (q / (q + size))[:, None, None]
    cov = (1 - share) * cov + share * pooled + context.ridge / k * np.eye(q)
    full = np.linalg.slogdet(cov)[1]
    diagonal = np.log(np.diagonal(cov, axis1=1, axis2=2)).sum(1)
    spherical = q * np.log(np.trace(cov, axis1=1, axis2=2) / q)
    log_share = (size / n * np.log(size / n)).sum()
    parameters = (k * (q + q * (q + 1) / 2 + 1), k * (2 * q + 1), k * (q + 2))
    results = [log_within + 2 / max(context.effective, 1.0) * np.log(k)]
    for log_det, count in zip((full, diagonal, spherical), parameters, strict=True):
        likelihood = log_share - 0.5 * float((size / n * log_det).sum())
        results.append((likelihood - 0.5 * count * np.log(n) / n) / np.sqrt(q))
    return results


def _graph(context: _Context, labels: Labels, members: Floats, size: Floats) -> list[float]:
    """Return fractions of neighbours in the same cluster, and the modularity of the neighbour graph."""
    same = labels[context.near] == labels[:, None]  # (n, 10)
    results: list[float] = []
    for count in NEAR:
        inside = same[:, :count].mean(1)
        by_cluster = (members.T @ inside) / size
        results += [float(by_cluster.min()), float(inside.mean())]
    received = members.T @ np.bincount(context.near.ravel(), minlength=context.n)
    degree = (received + size * context.near.shape[1]) / 2
    results.append(float(same.mean() - ((degree / degree.sum()) ** 2).sum()))
    # Fraction of links across clusters, relative to k random parts of a set of this dimension
    cross = 1 - same.mean()
    dimension = min(context.local_dimension, 20.0)
    results.append(float(np.log(cross + 0.5 / same.size) - np.log(len(size) / context.n + 1e-9) / dimension))
    return results


def _valleys(context: _Context, labels: Labels, k: int) -> list[float]:
    """Return depths of the valleys of density between neighbouring clusters."""
    if k == 1:
        return [0.0] * 6
    density = context.table.log_density
    peak = np.full(k, -np.inf)
    np.maximum.at(peak, labels, density)
    a, b = labels[context.row], labels[context.column]
    cross = a != b
    depth = np.full(k, MAX_DEPTH)
    typical = np.full(k, MAX_DEPTH)
    if cross.any():
        a, b, saddle = a[cross], b[cross], context.saddle[cross]
        highest = np.full((k, k), -np.inf)
        np.maximum.at(highest, (a, b), saddle)
        highest = np.maximum(highest, highest.T)
        count = np.zeros((k, k))
        np.add.at(count, (a, b), 1)
        total = np.zeros((k, k))
        np.add.at(total, (a, b), saddle)
        average = (total + total.T) / np.maximum(count + count.T, 1)
        lower = np.minimum(peak[:, None], peak)
        connected = np.isfinite(highest)
        depth = np.where(connected, lower - np.where(connected, highest, 0), MAX_DEPTH).min(1).clip(max=MAX_DEPTH)
        size = np.bincount(labels, minlength=k)
        middle = density[np.lexsort((density, labels))][size.cumsum() - size + size // 2]  # medians
        lower = np.minimum(middle[:, None], middle)
        typical = np.where(connected, lower - average, MAX_DEPTH).min(1).clip(-MAX_DEPTH, MAX_DEPTH)
    weight = np.bincount(labels, minlength=k).astype(float)
    return [*_summary(depth, weight), *_summary(typical, weight)]


def _tree_steps(context: _Context, labels: Labels, k: int) -> list[float]:
    """Return lengths of the steps of the spanning tree between clusters, compared with those within."""
    a, b = labels[context.edges[:, 0]], labels[context.edges[:, 1]]
    inside = a == b
    n_cross = int((~inside).sum())
    longest = np.full(k, np.log(1e-4))
    np.maximum.at(longest, a[inside], context.length[inside])
    typical = np.full(k, -np.inf)
    np.maximum.at(typical, a[inside], context.relative[inside])
    within = float(np.where(np.isfinite(typical), typical, 0).max())
    mean_within = float(np.where(np.isfinite(typical), typical, 0).mean())
    if not n_cross:
        return [0.0, 0.0, 0.0, 0.0, 0.0, within, mean_within, 0.0, 0.0]
    out = np.full(k, np.inf)
    np.minimum.at(out, a[~inside], context.length[~inside])
    np.minimum.at(out, b[~inside], context.length[~inside])
    ratio = np.where(np.isfinite(out), out - longest, 2.0).clip(-4, 4)
    relative = context.relative[~inside]
    return [
        float(ratio.min()),
        float(np.median(ratio)),
        np.log1p(n_cross - (k - 1)) / np.log(context.n),
        float(relative.min()),
        float(relative.mean()),
        within,
        mean_within,
        float(context.rank[~inside].min()),
        float(context.rank[~inside].mean()),
    ]


def _shapes(context: _Context, labels: Labels, members: Floats, size: Floats) -> list[float]:
    """Return gaps between the nearest clusters along the line of their centres, and gaps within clusters."""
    z, k, q = context.principal, len(size), context.principal.shape[1]
    center = (members.T @ z) / size[:, None]
    cov = (members.T @ context.outer).reshape(k, q, q) / size[:, None, None] - center[:, :, None] * center[:, None, :]
    cov = cov + context.ridge / k * np.eye(q)
    # Gaps within a cluster along its longest axis: the largest share of variance that a cut explains
    axis = np.linalg.eigh(cov)[1][:, :, -1]  # (k, q)
    along = (z * axis[labels]).sum(1)
    split = _best_cuts(along, labels, size)
    inside = [float(split[:, 0].max()), float((split[:, 0] * size).sum() / context.n)]
    inside += [float(split[:, 1].max()), float((split[:, 1] * size).sum() / context.n)]
    if k == 1:
        return [*inside, *[0.0] * 9]
    step = center[None] - center[:, None]  # (k, k, q)
    line = step / np.maximum(np.linalg.norm(step, axis=2, keepdims=True), 1e-12)
    spread = np.sqrt(np.einsum("abp,apq,abq->ab", line, cov, line, optimize=True).clip(1e-12))
    gap = np.linalg.norm(step, axis=2) / (spread + spread.T)
    pooled = (size[:, None, None] * cov).sum(0) / context.n
    linear = np.sqrt(np.einsum("abp,pq,abq->ab", step, np.linalg.inv(pooled), step, optimize=True).clip(0))
    np.fill_diagonal(gap, np.inf)
    np.fill_diagonal(linear, np.inf)
    nearest = gap.argmin(1)
    cut = _valleys_between(z, labels, center, line, nearest)
    return [
        *inside,
        *_summary(gap.min(1), size),
        *_summary(np.log(linear.min(1).clip(1e-12)), size),
        *_summary(cut, size),
    ]


def _best_cuts(along: Floats, labels: Labels, size: Floats) -> Floats:
    """Return, for each cluster, the largest share of variance that one cut explains, and the gap there, shape (k, 2).

    The share is .64 for a Gaussian and .75 for a uniform cluster. The gap is the log ratio of the items near the
    centres of both sides to those between.
    """
    k = len(size)
    order = np.lexsort((along, labels))
    own = labels[order]
    mean = np.bincount(labels, along, k) / size
    a = along[order] - mean[own]
    start = (size.cumsum() - size).astype(np.int64)
    left = np.arange(len(a)) - start[own] + 1
    right = size[own] - left
    total = a.cumsum()  # the sum over a cluster is zero, so that sums of earlier clusters vanish
    explained = np.where(right > 0, total**2 * size[own] / np.maximum(left * right, 1), -1.0)
    best = np.maximum.reduceat(explained, start)  # (k,)
    at = np.flatnonzero(explained == best[own])
    at = at[np.unique(own[at], return_index=True)[1]]  # (k,)
    low, high = total[at] / left[at], -total[at] / np.maximum(right[at], 1)
    width = (high - low) / 6
    near = [
        np.bincount(own[np.abs(a - place[own]) < width[own]], minlength=k) for place in ((low + high) / 2, low, high)
    ]
    gap = np.log((np.minimum(near[1], near[2]) + 1) / (near[0] + 1))
    variance = np.bincount(own, a**2, k)
    valid = (size >= 4) & (variance > 1e-12)
    share = np.where(valid, best / np.maximum(variance, 1e-12), 0.6)
    return np.stack([share, np.where(valid, gap, 0.0)], axis=1)


def _valleys_between(z: Floats, labels: Labels, center: Floats, line: Floats, nearest: Labels) -> Floats:
    """Return the log ratio of the items near two centres to those between, for each cluster and its nearest, (k,)."""
    k = len(nearest)
    order = np.argsort(labels, kind="stable")
    size = np.bincount(labels, minlength=k)
    parts = np.split(order, size.cumsum()[:-1])
    items = np.concatenate([part for a, b in enumerate(nearest) for part in (parts[a], parts[b])])
    pair = np.repeat(np.arange(k), size + size[nearest])
    direction = line[np.arange(k), nearest]  # (k, q)
    low, high = (center * direction).sum(1), (center[nearest] * direction).sum(1)
    width = np.maximum(high - low, 1e-12) / 6
    position = (z[items] * direction[pair]).sum(1)
    near = [
        np.bincount(pair[np.abs(position - place[pair]) < width[pair]], minlength=k)
        for place in ((low + high) / 2, low, high)
    ]
    return np.asarray(np.log((np.minimum(near[1], near[2]) + 1) / (near[0] + 1)))


def _relative_gains(gain: Floats, k: Labels) -> Floats:
    """Compare scatter and likelihoods with the best candidates of the same k, one less, one more, and of any k."""
    sign = np.array([-1.0, 1.0, 1.0, 1.0])  # small scatter and large likelihoods are good
    value = gain * sign
    top = int(k.max()) + 2
    best = np.full((top + 1, value.shape[1]), -np.inf)
    for row, count in zip(value, k, strict=True):
        best[count] = np.maximum(best[count], row)
    for count in range(1, top + 1):  # numbers that no method proposes: the value for one less
        best[count] = np.where(np.isfinite(best[count]), best[count], best[count - 1])
    best[0] = best[1]
    overall = best.max(0)
    return np.concatenate(
        [value - best[k], best[k] - best[k - 1], best[k] - best[k + 1], value - overall, overall - best[1] + 0 * value],
        axis=1,
    )


def pairwise_agreement(partitions: Sequence[Labels], seed: int) -> Floats:
    """Estimate the adjusted Rand index of all pairs of partitions on random pairs of items, shape (m, m)."""
    stacked = np.stack(partitions)  # (m, n)
    n = stacked.shape[1]
    rng = np.random.default_rng(seed)
    if n * (n - 1) // 2 <= N_PAIRS:
        a, b = np.triu_indices(n, 1)
    else:
        a = rng.integers(0, n, N_PAIRS)
        b = (a + rng.integers(1, n, N_PAIRS)) % n
    same = (stacked[:, a] == stacked[:, b]).astype(np.float32)  # (m, pairs)
    both = (same @ same.T).astype(np.float64) / same.shape[1]
    share = same.mean(1, dtype=np.float64)
    expected = share[:, None] * share
    highest = (share[:, None] + share) / 2
    index = (both - expected) / np.maximum(highest - expected, 1e-9)
    return np.where(highest - expected < 1e-9, 1.0, index)


def _agreement_features(agreement: Floats, k: Labels, methods: Floats) -> Floats:
    """Return the agreement with candidates of the same number of clusters, and of one more or less."""
    weight = methods.sum(1)
    features = []
    for difference in (0, 1, -1):
        mask = (k[None] == k[:, None] + difference) & ~np.eye(len(k), dtype=bool)
        w = mask * weight[None]
        if difference == 0:
            w = w + np.diag(weight - 1)
        total = w.sum(1)
        mean = (w * agreement).sum(1) / np.maximum(total, 1)
        largest = np.where(w > 0, agreement, 0).max(1)
        features += [mean, largest, np.log1p(total)]
    features.append(weight)
    return np.stack(features, axis=1)
