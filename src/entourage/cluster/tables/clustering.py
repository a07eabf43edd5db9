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
COUNT_WEIGHT = 0.5  # of log P(k) in the score of a candidate; selected on simulated tables and the tuning half
CONSENSUS_WEIGHT = 10.0  # of the agreement with candidates of the same k, in their scores; selected likewise
N_VOTES = 5  # neighbours that determine the cluster of an item outside of the subset
CHUNK = 8192  # items whose neighbours are searched at once, to limit memory
MIN_ROWS = 6  # fewer distinct rows are one cluster, as nothing can be estimated from them
ENSEMBLE_TEMPERATURE = 0.5  # of the scores of candidates with the same number of clusters, for probabilities of items
NOISE_SPREADS = 4.0  # robust standard deviations beyond which an item's distance to its neighbours is that of noise


@cache
def shipped_scorer(path: Path) -> PartitionScorer:
    """Load a scorer once."""
    return load_scorer(path)


def nearest_average(X: Floats, reference: Floats, values: Floats) -> Floats:
    """Average values over the nearest reference points of each row, weighted by the inverse squared distance.

    Args:
        X: rows, shape (n, d).
        reference: reference points, shape (m, d).
        values: their values, shape (m, k).

    Returns:
        Averages, shape (n, k); a row that equals a reference point gets its value. Costs O(n m d) time and O(m) memory.
    """
    result = np.empty((len(X), values.shape[1]))
    center = reference.mean(0)
    size = max(float(np.abs(reference - center).max(initial=0.0)), 1e-300)
    points = ((reference - center) / size).astype(np.float32)
    norm = (points**2).sum(1)
    count = min(N_VOTES, len(points))
    for first in range(0, len(X), CHUNK):
        z = ((X[first : first + CHUNK] - center) / size).astype(np.float32)
        near = np.argpartition(norm - 2 * z @ points.T, count - 1, axis=1)[:, :count]
        squared = ((z[:, None] - points[near]) ** 2).sum(2)  # exact, unlike the product
        weight = 1 / (squared + 1e-12 + 1e-4 * squared.mean(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        result[first : first + CHUNK] = np.einsum("nv,nvk->nk", weight, values[near])
    return result


@dataclass(frozen=True)
class TableClustering:
    """Scored candidate partitions of a table.

    Attributes:
        scaling: map from columns to prepared coordinates.
        table: prepared subset, m items.
        candidates: candidate partitions of the subset.
        choice: score of each candidate, shape (number of candidates,): the logarithm of its probability to be the best
            one, and a part of that of its number of clusters.
        quality: expected adjusted Rand index of each candidate.
        count: P(k) for k = 1 to k_max.
        agreement: adjusted Rand index of all pairs of candidates.
    """

    scaling: Scaling
    table: PreparedTable
    candidates: list[Candidate]
    choice: Floats
    quality: Floats
    count: Floats
    agreement: Floats

    def best(self, k: int | None = None) -> int:
        """Return the index of the best candidate, or of the best one with k clusters.

        Among candidates with the same number of clusters, agreement with the others counts, too: their scores are
        similar if the clusters overlap.

        Raises:
            ValueError: there is no candidate with k clusters.
        """
        if k is None:
            k = self.candidates[int(self.choice.argmax())].k
        possible = np.array([i for i, candidate in enumerate(self.candidates) if candidate.k == k], dtype=np.int64)
        if not len(possible):
            raise ValueError(f"n_clusters is {k}; expected at most the number of distinct rows, {len(self.table)}")
        score = self.choice[possible]
        weight = np.exp(score - score.max())
        agreement = self.agreement[np.ix_(possible, possible)] @ weight / weight.sum()
        return int(possible[(score + CONSENSUS_WEIGHT * agreement).argmax()])

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
        mean = (total / total.sum(1, keepdims=True) + smooth) / 2
        # The label is that of the best candidate, also where the others and the neighbours have another.
        items = np.arange(len(mean))
        mean[items, reference.labels] = np.maximum(mean[items, reference.labels], 1.01 * mean.max(1))
        return np.asarray(mean / mean.sum(1, keepdims=True))

    def subset_labels(self, k: int | None = None) -> Labels:
        """Return the clusters of the items of the subset, shape (m,)."""
        return self.candidates[self.best(k)].labels

    def extend(self, X: Floats, values: Floats) -> Floats:
        """Average values of the subset, shape (m, k), over the nearest items of each row of X, shape (n, k).

        A row of the subset gets its own value. Costs O(n m) time and O(m) memory.
        """
        return nearest_average(self.scaling.transform(X) / self.table.size, self.table.z, values)

    def is_noise(self, X: Floats, labels: Labels, k: int) -> NDArray[np.bool_]:
        """Return which rows of X are much farther from their neighbours than the items of their cluster.

        Args:
            X: rows, shape (n, d).
            labels: their clusters among those of `subset_labels(k)`, shape (n,).
            k: number of clusters.

        Returns:
            Mask, shape (n,).
        """
        core = np.log(self.table.neighbor_distances[:, :N_VOTES].mean(1) + 1e-9)
        own = self.subset_labels(k)
        limit = np.empty(k)
        for cluster in range(k):
            inside = core[own == cluster]
            middle = np.median(inside)
            limit[cluster] = middle + NOISE_SPREADS * 1.4826 * max(float(np.median(np.abs(inside - middle))), 0.05)
        return self.extend(X, core[:, None])[:, 0] > limit[labels]


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
        return TableClustering(scaling, table, candidates, lone, np.exp(lone), count, np.eye(len(candidates)))
    features = describe(table, candidates)
    with torch.inference_mode():
        k = torch.from_numpy(features.k)[None]
        mask = torch.ones_like(k, dtype=torch.bool)
        values, agreement = torch.from_numpy(features.values)[None], torch.from_numpy(features.agreement)[None]
        scores = scorer(values, agreement, k, mask)
        count = count_log_probabilities(scores.count, k, limit)[0].double().exp().numpy()
        choice = torch.log_softmax(scores.choice[0].double(), 0).numpy()
        choice = choice + COUNT_WEIGHT * np.log(count[features.k - 1] + 1e-12)
        quality = scores.quality[0].double().sigmoid().numpy()
    similar = features.agreement.astype(np.float64)
    return TableClustering(scaling, table, candidates, choice, quality, count / count.sum(), similar)


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
