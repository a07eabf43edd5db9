"""How good a clustering is: misclassification rate, mutual information, Rand index, and the error in k.

Measuring a network, or any other method, on sets that are always the same.

What a user would reach for instead: chance, k-means, DBSCAN and HDBSCAN, for the same tables.

k-means is given the true k, or finds it by the silhouette; DBSCAN and HDBSCAN get the setting that is best on
validation sets, and keep it.
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
    """Measures of one clustering, or their means over many.

    Attributes:
        mr: misclassification rate under the best one-to-one naming of clusters, in [0, 1]; 0 is perfect.
        greedy_mr: the same under a naming chosen greedily, as the original reports it: never below `mr`.
        nmi: normalised mutual information, by the arithmetic mean of the entropies (today's custom).
        nmi_geometric: the same by the geometric mean (that of the original).
        ari: adjusted Rand index; 1 is perfect, 0 what chance gives.
        k_error: |found clusters - true clusters|.
        k_right: 1 if there are as many clusters as there should be, else 0.
    """

    mr: float
    greedy_mr: float
    nmi: float
    nmi_geometric: float
    ari: float
    k_error: float
    k_right: float


def score(labels_true: ArrayLike, labels_pred: ArrayLike) -> ClusteringScores:
    """Measures one clustering against the truth.

    Args:
        labels_true: the true cluster of each item, shape (n,).
        labels_pred: the predicted cluster of each item, shape (n,). Names need not agree. -1, which is noise to DBSCAN,
            is taken for one more cluster, which is kinder than taking it for mistakes, but does not count towards k.

    Returns:
        The measures. Costs O(n + t f max(t, f)) for t true and f found clusters.

    Raises:
        ValueError: the two are of different length, empty or not one-dimensional.
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
    """The mean of every measure over several clusterings."""
    if not scores:
        raise ValueError("there are no scores to average; expected at least one")
    rows = np.array([list(asdict(one).values()) for one in scores])  # (s, measures)
    return ClusteringScores(*rows.mean(axis=0).tolist())


def contingency_table(labels_true: NDArray[np.generic], labels_pred: NDArray[np.generic]) -> NDArray[np.int64]:
    """How many items of each true cluster are in each found one, shape (t, f)."""
    _, row = np.unique(labels_true, return_inverse=True)
    _, column = np.unique(labels_pred, return_inverse=True)
    table = np.zeros((int(row.max()) + 1, int(column.max()) + 1), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table


def misclassification_rate(table: NDArray[np.int64]) -> float:
    """The share of items outside the cluster that is matched with theirs, under the best matching (Hungarian).

    Args:
        table: true by found clusters, as `contingency_table` gives it.
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(1 - table[rows, columns].sum() / table.sum())


def greedy_misclassification_rate(table: NDArray[np.int64]) -> float:
    """The same under a greedy matching, largest overlap first: an upper bound of the true rate."""
    remaining, n_correct = table.astype(np.int64), 0
    for _ in range(min(table.shape)):
        row, column = np.unravel_index(int(remaining.argmax()), remaining.shape)
        n_correct += int(max(remaining[row, column], 0))
        remaining[row, :] = remaining[:, column] = -1  # both are taken
    return float(1 - n_correct / table.sum())


VALIDATION_SEED = 1_000_003
MAX_PAIRS = 4_000_000  # that are looked at together, to keep memory in bounds


def draw_sets(
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    seed: int = VALIDATION_SEED,
    batch: int | None = None,
) -> Iterator[Episode]:
    """Draws sets in batches, always on the CPU: the same arguments give the same sets, whoever is to cluster them.

    Args:
        sampler: of the sets.
        sets: how many.
        n: items of each.
        k_max: the most clusters of each, if fewer than the sampler's.
        seed: of the sets.
        batch: how many at a time; by default as many as have some million pairs together, at most 50.
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
    """Measures a network on sets that are always the same.

    Args:
        model: the network, or any function from sets (b, n, ...) to clusters (b, n).
        sampler: of the sets; where it knows pairs alone, see `Episode.clusters`. For the others see `draw_sets`.
        device: where the network is; the sets are drawn on the CPU and moved there.

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

DBSCAN_RADII = (
    0.01,
    0.015,
    0.02,
    0.03,
    0.04,
    0.06,
    0.08,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1,
    2,
    3,
    5,
)  # of DBSCAN, in extents
DBSCAN_MIN_SAMPLES = (2, 3, 4, 5, 8)
HDBSCAN_MIN_SIZES = (3, 4, 5, 6, 8, 10, 15)  # min_cluster_size


def random_clusters(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """Chance: k uniform, then a cluster for each item."""
    rng = np.random.default_rng([seed, len(X)])
    return rng.integers(0, rng.integers(1, k_max + 1), len(X))


def k_means(X: Floats, k: int, seed: int = 0) -> Labels:
    """k-means, given the true k."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies of a point leave clusters empty
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(X))


def k_means_silhouette(X: Floats, k_max: int, seed: int = 0) -> Labels:
    """k-means, k by the best mean silhouette, which is not defined for one cluster: 2 is the least it can find."""
    best = -2.0
    labels_pred: Labels = np.zeros(len(X), dtype=np.int64)
    for k in range(2, min(k_max, len(X) - 1) + 1):
        labels = k_means(X, k, seed)
        if 1 < len(np.unique(labels)) < len(X) and (width := float(silhouette_score(X, labels))) > best:
            best, labels_pred = width, labels
    return labels_pred


def dbscan(X: Floats, radius: float, min_samples: int) -> Labels:
    """DBSCAN; the radius in extents of the set, so that one setting can do for sets of any size."""
    return np.asarray(DBSCAN(eps=max(radius * _extent(X), 1e-12), min_samples=min_samples).fit_predict(X))


def hdbscan(X: Floats, min_cluster_size: int, allow_single_cluster: bool, min_samples: int | None = None) -> Labels:
    """HDBSCAN; `allow_single_cluster` allows that all items are one cluster."""
    if len(X) <= min_cluster_size:
        return np.zeros(len(X), dtype=np.int64)
    model = HDBSCAN(
        min_cluster_size=min_cluster_size, min_samples=min_samples, allow_single_cluster=allow_single_cluster, copy=True
    )
    return np.asarray(model.fit_predict(X))


def tune_dbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    """DBSCAN with the setting of the lowest misclassification rate on the sets, and its name."""
    settings = (
        (partial(dbscan, radius=r, min_samples=m), f"radius {r}, {pluralize(m, 'neighbours')}")
        for r, m in product(DBSCAN_RADII, DBSCAN_MIN_SAMPLES)
    )
    return _tune(settings, sets)


def tune_hdbscan(sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    """HDBSCAN with the setting of the lowest misclassification rate on the sets, and its name."""
    settings = (
        (
            partial(hdbscan, min_cluster_size=s, allow_single_cluster=one, min_samples=c),
            f"size {s}, {pluralize(c or s, 'neighbours')}{', one allowed' * one}",
        )
        for s, one, c in product(HDBSCAN_MIN_SIZES, (False, True), (None, 1, 3))
    )
    return _tune(settings, sets)


def _tune(settings: Iterable[tuple[Baseline, str]], sets: Sequence[tuple[Floats, Labels]]) -> tuple[Baseline, str]:
    if not sets:
        raise ValueError("there are no validation sets to choose a setting by; expected at least one")
    results = [
        (mean_scores([score(labels_true, baseline(X)) for X, labels_true in sets]).mr, baseline, name)
        for baseline, name in settings
    ]
    _, baseline, name = min(results, key=lambda one: one[0])
    return baseline, name


def _extent(X: Floats) -> float:
    return float((X.max(axis=0) - X.min(axis=0)).max())
