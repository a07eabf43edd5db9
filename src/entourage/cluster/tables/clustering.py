"""Clustering of a table of any width and length: candidates of a subset, their scores, and labels of all items.

At most `subset_size` distinct rows are processed together; other items get the cluster of their nearest neighbours
among them, and so do new items.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from entourage.cluster.tables.candidates import Candidate, one_hot, propose
from entourage.cluster.tables.features import describe
from entourage.cluster.tables.prepare import Floats, Labels, PreparedTable, Scaling
from entourage.cluster.tables.scorer import PartitionScorer, count_log_probabilities, load_scorer

SUBSET_SIZE = 1200  # distinct rows that are processed together
K_MAX = 50  # maximum number of clusters, if not given
N_VOTES = 5  # neighbours that determine the cluster of an item outside of the subset
CHUNK = 8192  # items whose neighbours are searched at once, to limit memory
MIN_ROWS = 6  # fewer distinct rows are one cluster, as nothing can be estimated from them
ENSEMBLE_TEMPERATURE = 0.5  # of the scores of candidates with the same number of clusters, for probabilities of items
NOISE_SPREADS = 4.0  # robust standard deviations beyond which an item's distance to its neighbours is that of noise


@cache
def shipped_scorer(path: Path) -> PartitionScorer:
    """Load a scorer once."""
    return load_scorer(path)


@dataclass(frozen=True)
class TableClustering:
    """Scored candidate partitions of a table.

    Attributes:
        scaling: map from columns to prepared coordinates.
        table: prepared subset, m items.
        candidates: candidate partitions of the subset.
        choice: log probability of each candidate to be the best, shape (number of candidates,).
        quality: expected adjusted Rand index of each candidate.
        count: P(k) for k = 1 to k_max.
    """

    scaling: Scaling
    table: PreparedTable
    candidates: list[Candidate]
    choice: Floats
    quality: Floats
    count: Floats

    def best(self, k: int | None = None) -> int:
        """Return the index of the best candidate, or of the best one with k clusters.

        Raises:
            ValueError: there is no candidate with k clusters.
        """
        possible = [i for i, candidate in enumerate(self.candidates) if k is None or candidate.k == k]
        if not possible:
            raise ValueError(f"n_clusters is {k}; expected at most the number of distinct rows, {len(self.table)}")
        return max(possible, key=lambda i: (self.choice[i], -self.candidates[i].k))

    def subset_probabilities(self, k: int | None = None) -> Floats:
        """Return P(l | x_i, k) of the items of the subset, shape (m, k).

        The candidates with k clusters vote with the weight of their scores; their clusters are matched with those of
        the best one.
        """
        best = self.best(k)
        reference = self.candidates[best]
        members = one_hot(reference.labels, reference.k)
        same_k = [i for i, candidate in enumerate(self.candidates) if candidate.k == reference.k]
        score = self.choice[same_k] / ENSEMBLE_TEMPERATURE
        weight = np.exp(score - score.max())
        weight /= weight.sum()
        total = np.zeros_like(members)
        for i, share in zip(same_k, weight, strict=True):
            if share > 1e-3:
                other = one_hot(self.candidates[i].labels, reference.k)
                rows, columns = linear_sum_assignment(members.T @ other, maximize=True)
                total[:, rows] += share * other[:, columns]
        near = self.table.neighbors[:, :N_VOTES]
        smooth = (members + members[near].sum(1)) / (near.shape[1] + 1)
        return np.asarray((total / total.sum(1, keepdims=True) + smooth) / 2)

    def subset_labels(self, k: int | None = None) -> Labels:
        """Return the clusters of the items of the subset, shape (m,)."""
        return self.candidates[self.best(k)].labels

    def extend(self, X: Floats, values: Floats) -> Floats:
        """Average values of the subset, shape (m, k), over the nearest items of each row of X, shape (n, k).

        A row of the subset gets its own value. Costs O(n m) time and O(m) memory.
        """
        result = np.empty((len(X), values.shape[1]))
        reference = self.table.z.astype(np.float32)
        norm = (reference**2).sum(1)
        count = min(N_VOTES, len(reference))
        for first in range(0, len(X), CHUNK):
            z = (self.scaling.transform(X[first : first + CHUNK]) / self.table.size).astype(np.float32)
            squared = np.maximum(norm - 2 * z @ reference.T + (z**2).sum(1)[:, None], 0)  # (chunk, m)
            near = np.argpartition(squared, count - 1, axis=1)[:, :count]
            distance = np.take_along_axis(squared, near, 1)
            floor = 1e-6 + 1e-6 * (z**2).sum(1)[:, None]
            weight = 1 / (distance + floor)
            weight /= weight.sum(1, keepdims=True)
            result[first : first + CHUNK] = np.einsum("nv,nvk->nk", weight, values[near])
        return result

    def is_noise(self, X: Floats, labels: Labels) -> NDArray[np.bool_]:
        """Return which rows of X are much farther from their neighbours than the other items of their cluster."""
        core = np.log(self.table.neighbor_distances[:, :N_VOTES].mean(1) + 1e-9)
        own = self.subset_labels(int(labels.max()) + 1)
        limit = np.empty(int(own.max()) + 1)
        for cluster in range(len(limit)):
            inside = core[own == cluster]
            middle = np.median(inside)
            limit[cluster] = middle + NOISE_SPREADS * 1.4826 * max(float(np.median(np.abs(inside - middle))), 0.05)
        outlying = (core > limit[own]).astype(float)[:, None]
        return self.extend(X, outlying)[:, 0] > 0.5


def cluster_table(
    X: Floats,
    scorer: PartitionScorer,
    *,
    n_clusters: int | None = None,
    k_max: int | None = None,
    subset_size: int | None = None,
    random_state: int | None = 0,
) -> TableClustering:
    """Propose and score partitions of a table.

    Args:
        X: finite numbers, shape (n, d), n >= 1.
        scorer: network that scores candidates.
        n_clusters: number of clusters, if known, so that partitions with this number are proposed.
        k_max: maximum number of clusters; None for 50.
        subset_size: distinct rows that are processed together; None for 1,200.
        random_state: seed for the subset.

    Returns:
        The scored partitions. Costs O(m^2 d) time and O(m^2) memory for a subset of m rows.
    """
    scaling = Scaling.fit(X)
    rows, first, multiplicity = np.unique(X, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    rows, multiplicity = rows[order], multiplicity[order]
    size = subset_size or SUBSET_SIZE
    if len(rows) > size:
        chosen = np.sort(np.random.default_rng(random_state).permutation(len(rows))[:size])
        rows, multiplicity = rows[chosen], multiplicity[chosen]
    table = PreparedTable(scaling.transform(rows), multiplicity.astype(np.float64))
    limit = max(k_max or K_MAX, n_clusters or 1)
    candidates = _propose(table, min(limit, max(2, len(table) // 3, n_clusters or 1)))
    if len(candidates) == 1 or len(table) < MIN_ROWS:
        count = np.zeros(limit)
        count[0] = 1
        lone = np.array([0.0 if candidate.k == 1 else -1e4 for candidate in candidates])
        return TableClustering(scaling, table, candidates, lone, np.exp(lone), count)
    features = describe(table, candidates)
    with torch.inference_mode():
        k = torch.from_numpy(features.k)[None]
        mask = torch.ones_like(k, dtype=torch.bool)
        values, agreement = torch.from_numpy(features.values)[None], torch.from_numpy(features.agreement)[None]
        scores = scorer(values, agreement, k, mask)
        count = count_log_probabilities(scores.count, k, limit)[0].double().exp().numpy()
        choice = torch.log_softmax(scores.choice[0].double(), 0).numpy()
        quality = scores.quality[0].double().sigmoid().numpy()
    return TableClustering(scaling, table, candidates, choice, quality, count / count.sum())


def _propose(table: PreparedTable, k_max: int) -> list[Candidate]:
    """Return the candidates; tables of very few distinct rows have one cluster, or one for each row."""
    n = len(table)
    whole = Candidate(("ward",), 1, np.zeros(n, dtype=np.int64))
    if n < MIN_ROWS:
        return [whole, *(Candidate(("ward",), k, np.minimum(np.arange(n), k - 1)) for k in range(2, min(k_max, n) + 1))]
    found = propose(table, k_max)
    if k_max >= n:
        found.append(Candidate(("ward",), n, np.arange(n)))
    return found
