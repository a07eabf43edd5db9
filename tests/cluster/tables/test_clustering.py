from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from entourage.cluster.tables.candidates import METHODS
from entourage.cluster.tables.clustering import TableClustering, cluster_table
from entourage.cluster.tables.scorer import PartitionScorer, ScorerOptions, Scores


class Silhouette(PartitionScorer):
    """A stand-in whose scores are the mean silhouette, so that the tests do not depend on trained weights."""

    def __init__(self) -> None:
        super().__init__(ScorerOptions(features=1))

    def forward(self, values: torch.Tensor, agreement: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> Scores:
        score = 200 * values[..., 16]  # seven features of the set, seven of sizes, then the silhouettes
        return Scores(score, score, score)


def blobs(n: int = 150, k: int = 3, d: int = 4, distance: float = 7.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, k, n)
    return distance * np.eye(max(k, d))[truth, :d] + rng.normal(size=(n, d)), truth


def labels_of(clustering: TableClustering, X: np.ndarray, k: int | None = None) -> np.ndarray:
    return clustering.extend(X, clustering.subset_probabilities(k)).argmax(1)


def test_clusters_and_their_number_are_found() -> None:
    X, truth = blobs()
    clustering = cluster_table(X, Silhouette())
    assert adjusted_rand_score(truth, labels_of(clustering, X)) > 0.97
    assert clustering.count.argmax() + 1 == 3
    assert clustering.count.sum() == pytest.approx(1)
    assert clustering.candidates[clustering.best()].k == 3


def test_all_numbers_of_clusters_are_available_up_to_the_number_of_items() -> None:
    X, _ = blobs(12)
    for k in (1, 2, 5, 11, 12):
        clustering = cluster_table(X, Silhouette(), n_clusters=k)
        assert len(set(labels_of(clustering, X, k).tolist())) == k
    with pytest.raises(ValueError, match="n_clusters is 13; expected"):
        clustering.best(13)


def test_repeated_rows_get_the_same_cluster_and_do_not_matter() -> None:
    X, truth = blobs()
    repeated = np.concatenate([X, np.repeat(X[:5], 40, axis=0)])
    labels = labels_of(cluster_table(repeated, Silhouette()), repeated)
    assert (labels[150:].reshape(5, 40) == labels[:5, None]).all()
    assert adjusted_rand_score(truth, labels[:150]) > 0.97


def test_items_outside_of_the_subset_get_the_cluster_of_their_neighbours() -> None:
    X, truth = blobs(2000)
    clustering = cluster_table(X, Silhouette(), subset_size=150)
    assert len(clustering.table) == 150
    assert adjusted_rand_score(truth, labels_of(clustering, X)) > 0.97


def test_a_row_of_the_subset_keeps_its_own_value() -> None:
    X, _ = blobs()
    clustering = cluster_table(X, Silhouette())
    values = np.arange(150.0)[:, None]
    np.testing.assert_allclose(clustering.extend(X, values), values, rtol=0.02, atol=0.2)


def test_probabilities_are_low_between_clusters() -> None:
    X, truth = blobs(400, 2, 2, distance=2.0)
    clustering = cluster_table(X, Silhouette(), n_clusters=2)
    confidence = clustering.extend(X, clustering.subset_probabilities(2)).max(1)
    correct = labels_of(clustering, X, 2) == truth
    correct = correct if correct.mean() > 0.5 else ~correct
    assert confidence[correct].mean() > confidence[~correct].mean() + 0.05


def test_distant_items_are_noise() -> None:
    X, _ = blobs(300, 3, 2)
    X[:4] = [[40, 40], [-40, 30], [20, -50], [-60, -60]]
    clustering = cluster_table(X, Silhouette(), n_clusters=3)
    noise = clustering.is_noise(X, labels_of(clustering, X, 3), 3)
    assert noise[:4].all()
    assert noise[4:].mean() < 0.05


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_very_few_or_equal_rows_are_one_cluster(n: int) -> None:
    X = np.arange(2.0 * n).reshape(n, 2)
    assert cluster_table(X, Silhouette()).count[0] == 1
    assert labels_of(cluster_table(np.zeros((9, 2)), Silhouette()), np.zeros((9, 2))).tolist() == [0] * 9
    if n > 1:
        assert len(set(labels_of(cluster_table(X, Silhouette(), n_clusters=n), X, n).tolist())) == n


def test_the_candidates_name_their_methods() -> None:
    X, _ = blobs()
    for candidate in cluster_table(X, Silhouette(), k_max=5).candidates:
        assert candidate.methods
        assert set(candidate.methods) <= set(METHODS)
        assert candidate.k <= 5
