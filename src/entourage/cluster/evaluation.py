"""Evaluation of clusterings: scores, evaluation on reproducible sets, and baselines for comparison.

The baselines are random clusters, k-means, DBSCAN and HDBSCAN. k-means is given the true k, or estimates it by the
silhouette; DBSCAN and HDBSCAN use the setting with the lowest misclassification rate on validation sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score
from torch import Tensor, nn

from entourage.cluster.sampling.episodes import Episode, EpisodeSampler
from entourage.report.page import pluralize


@dataclass(frozen=True)
class ClusteringScores:
    """Scores of a clustering, or their means over several clusterings.

    Attributes:
        mr: misclassification rate under the best one-to-one matching of clusters, in [0, 1]; 0 is perfect.
        greedy_mr: misclassification rate under a greedy matching, as in the original code; never below `mr`.
        nmi: normalised mutual information, with the arithmetic mean of the entropies (scikit-learn's default).
        nmi_geometric: normalised mutual information, with the geometric mean (as in the original code).
        ari: adjusted Rand index; 1 is perfect, 0 the expectation for random clusters.
        k_error: |predicted number of clusters - true number of clusters|.
        k_right: 1 if the number of clusters is correct, else 0.
    """

    mr: float
    greedy_mr: float
    nmi: float
    nmi_geometric: float
    ari: float
    k_error: float
    k_right: float


def score(labels_true: ArrayLike, labels_pred: ArrayLike) -> ClusteringScores:
    """Score a clustering against the true clusters.

    Args:
        labels_true: true cluster of each item, shape (n,).
        labels_pred: predicted cluster of each item, shape (n,). Labels are matched, so they need not be those of
            `labels_true`. -1, the noise of DBSCAN, is treated as one more cluster, except in `k_error`.

    Returns:
        The scores. Costs O(n + t p max(t, p)) for t true and p predicted clusters.

    Raises:
        ValueError: the arguments are of different length, empty or not one-dimensional.
    """
    labels_true, labels_pred = np.asarray(labels_true), np.asarray(labels_pred)
    if labels_true.ndim != 1 or labels_true.shape != labels_pred.shape or not len(labels_true):
        raise ValueError(
            f"labels_true has shape {labels_true.shape}, labels_pred {labels_pred.shape}; expected (n,) twice, n > 0"
        )
    table = contingency_table(labels_true, labels_pred)
    k_error = float(abs(len(np.unique(labels_true)) - len(np.unique(labels_pred[labels_pred != -1]))))
    return ClusteringScores(
        mr=misclassification_rate(table),
        greedy_mr=greedy_misclassification_rate(table),
        nmi=float(normalized_mutual_info_score(labels_true, labels_pred, average_method="arithmetic")),
        nmi_geometric=float(normalized_mutual_info_score(labels_true, labels_pred, average_method="geometric")),
        ari=float(adjusted_rand_score(labels_true, labels_pred)),
        k_error=k_error,
        k_right=float(k_error == 0),
    )


def mean_scores(scores: Sequence[ClusteringScores]) -> ClusteringScores:
    """Return the mean of each score over several clusterings."""
    if not scores:
        raise ValueError("scores is empty; expected at least one")
    rows = np.array([list(asdict(s).values()) for s in scores])  # (s, measures)
    return ClusteringScores(*rows.mean(axis=0).tolist())


def contingency_table(labels_true: NDArray[np.generic], labels_pred: NDArray[np.generic]) -> NDArray[np.int64]:
    """Count the items in each pair of a true and a predicted cluster, shape (t, p)."""
    _, row = np.unique(labels_true, return_inverse=True)
    _, column = np.unique(labels_pred, return_inverse=True)
    table = np.zeros((int(row.max()) + 1, int(column.max()) + 1), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table


def misclassification_rate(table: NDArray[np.int64]) -> float:
    """Return the fraction of items that are not in the matched cluster, under the best matching (Hungarian).

    Args:
        table: contingency table of true and predicted clusters, shape (t, p).
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(1 - table[rows, columns].sum() / table.sum())


def greedy_misclassification_rate(table: NDArray[np.int64]) -> float:
    """Return the misclassification rate under a greedy matching, largest overlap first: an upper bound."""
    remaining, n_correct = table.astype(np.int64), 0
    for _ in range(min(table.shape)):
        row, column = np.unravel_index(int(remaining.argmax()), remaining.shape)
        n_correct += int(max(remaining[row, column], 0))
        remaining[row, :] = remaining[:, column] = -1  # both clusters are matched
    return float(1 - n_correct / table.sum())


VALIDATION_SEED = 1_000_003
MAX_PAIRS = 4_000_000  # pairs of items per batch, to limit memory


def draw_sets(
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    seed: int = VALIDATION_SEED,
    batch: int | None = None,
) -> Iterator[Episode]:
    """Draw sets in batches, on the CPU, so that the same arguments give the same sets for every method.

    Args:
        sampler: sampler of the sets.
        sets: number of sets.
        n: items per set.
        k_max: maximum number of clusters per set; None for the sampler's.
        seed: random seed of the sets.
        batch: sets per batch; None for at most 50 sets and `MAX_PAIRS` pairs.
    """
    batch = batch or max(1, min(50, MAX_PAIRS // n**2))
    for first in range(0, sets, batch):
        yield sampler.draw(min(batch, sets - first), n, torch.Generator().manual_seed(seed + first), k_max)


@torch.no_grad()
def evaluate(
    model: nn.Module | Callable[[Tensor], Tensor],
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    device: torch.device | None = None,
    seed: int = VALIDATION_SEED,
    batch: int | None = None,
) -> list[ClusteringScores]:
    """Evaluate a network, or another clustering method, on reproducible sets.

    Args:
        model: network, or any function from sets (b, n, ...) to clusters (b, n).
        sampler: sampler of the sets; a sampler of constraints is scored by `Episode.clusters`.
        sets: number of sets.
        n: items per set.
        k_max: maximum number of clusters per set; None for the sampler's.
        device: device of the network; the sets are drawn on the CPU and moved there.
        seed: random seed of the sets.
        batch: sets per batch; None for at most 50 sets and `MAX_PAIRS` pairs.

    Returns:
        The scores of each set.
    """
    scores = []
    for episode in draw_sets(sampler, sets, n, k_max, seed=seed, batch=batch):
        prediction = model(episode.x if device is None else episode.x.to(device))
        labels_pred = prediction if isinstance(prediction, Tensor) else prediction.clusters()
        labels_true = episode.clusters().cpu().numpy()
        scores += [score(t, f) for t, f in zip(labels_true, labels_pred.cpu().numpy(), strict=True)]
    return scores


Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Baseline = Callable[[Floats], Labels]

# Radii of DBSCAN, as fractions of the extent of the set
DBSCAN_RADII = (0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 3, 5)
DBSCAN_MIN_SAMPLES = (2, 3, 4, 5, 8)
HDBSCAN_MIN_SIZES = (3, 4, 5, 6, 8, 10, 15)


def random_clusters(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """Draw k uniformly, then a cluster for each item."""
    rng = np.random.default_rng([seed, len(X)])
    return rng.integers(0, rng.integers(1, k_max + 1), len(X))


def k_means(X: Floats, k: int, seed: int = 0) -> Labels:
    """Cluster with k-means, given the true k."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate points leave clusters empty
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(X))


def k_means_silhouette(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """Cluster with k-means, k by the best mean silhouette; k >= 2, as one cluster has no silhouette."""
    best = -2.0
    labels_pred: Labels = np.zeros(len(X), dtype=np.int64)
    for k in range(2, min(k_max, len(X) - 1) + 1):
        labels = k_means(X, k, seed)
        if 1 < len(np.unique(labels)) < len(X) and (width := float(silhouette_score(X, labels))) > best:
            best, labels_pred = width, labels
    return labels_pred


def dbscan(X: Floats, radius: float, min_samples: int) -> Labels:
    """Cluster with DBSCAN; the radius is a fraction of the set's extent, so that one setting fits sets of any scale."""
    return np.asarray(DBSCAN(eps=max(radius * _extent(X), 1e-12), min_samples=min_samples).fit_predict(X))


def hdbscan(X: Floats, min_cluster_size: int, allow_single_cluster: bool, min_samples: int | None = None) -> Labels:
    """Cluster with HDBSCAN; fewer items than `min_cluster_size` are one cluster."""
    if len(X) <= min_cluster_size:
        return np.zeros(len(X), dtype=np.int64)
    model = HDBSCAN(
        min_cluster_size=min_cluster_size, min_samples=min_samples, allow_single_cluster=allow_single_cluster, copy=True
    )
    return np.asarray(model.fit_predict(X))


def tune_dbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    """Return DBSCAN with the setting of the lowest misclassification rate on the sets, and the setting's name."""
    settings = (
        (partial(dbscan, radius=r, min_samples=m), f"radius {r}, {pluralize(m, 'neighbours')}")
        for r, m in product(DBSCAN_RADII, DBSCAN_MIN_SAMPLES)
    )
    return _tune(settings, sets)


def tune_hdbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    """Return HDBSCAN with the setting of the lowest misclassification rate on the sets, and the setting's name."""
    settings = (
        (
            partial(hdbscan, min_cluster_size=s, allow_single_cluster=single, min_samples=c),
            f"size {s}, {pluralize(c or s, 'neighbours')}{', one allowed' * single}",
        )
        for s, single, c in product(HDBSCAN_MIN_SIZES, (False, True), (None, 1, 3))
    )
    return _tune(settings, sets)


def _tune(settings: Iterable[tuple[Baseline, str]], sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    if not sets:
        raise ValueError("sets is empty; expected at least one validation set")
    results = [
        (mean_scores([score(labels_true, baseline(X)) for X, labels_true in sets]).mr, baseline, name)
        for baseline, name in settings
    ]
    _, baseline, name = min(results, key=lambda result: result[0])
    return baseline, name


def _extent(X: Floats) -> float:
    return float((X.max(axis=0) - X.min(axis=0)).max())
