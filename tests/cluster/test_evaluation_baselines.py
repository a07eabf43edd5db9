from __future__ import annotations

import numpy as np
import pytest

from entourage.cluster import evaluation as module
from entourage.cluster.evaluation import (
    dbscan,
    hdbscan,
    k_means,
    k_means_silhouette,
    random_clusters,
    score,
    tune_dbscan,
    tune_hdbscan,
)


def blobs(seed: int = 0, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels_true = np.repeat(np.arange(k), 20)
    return 4 * np.stack([labels_true, labels_true % 2], axis=1) + 0.2 * rng.normal(size=(20 * k, 2)), labels_true


def ring_in_ring() -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(t), np.sin(t)], axis=1)
    return np.concatenate([circle, 0.2 * circle]), np.repeat([0, 1], 40)


def test_baselines_solve_the_sets_that_they_suit() -> None:
    X, labels_true = blobs()
    rings, inner = ring_in_ring()
    assert score(labels_true, k_means(X, 3)).mr == 0
    assert score(labels_true, k_means_silhouette(X, 5)).mr == 0
    assert score(labels_true, dbscan(X, 0.15, 3)).mr == 0
    assert score(labels_true, hdbscan(X, 5, allow_single_cluster=False)).mr == 0
    assert score(inner, k_means(rings, 2)).mr > 0.2
    assert score(inner, dbscan(rings, 0.1, 3)).mr == 0


def test_a_radius_is_a_fraction_of_the_extent() -> None:
    X, _ = blobs()
    np.testing.assert_array_equal(dbscan(1000 * X, 0.1, 3), dbscan(X, 0.1, 3))


def test_random_clusters_depend_only_on_the_seed() -> None:
    X, labels_true = blobs()
    np.testing.assert_array_equal(random_clusters(X, 5, seed=1), random_clusters(X, 5, seed=1))
    predictions = [random_clusters(X, 5, seed=s) for s in range(200)]
    assert {len(np.unique(labels)) for labels in predictions} == {1, 2, 3, 4, 5}
    assert np.mean([score(labels_true, labels).ari for labels in predictions]) == pytest.approx(0, abs=0.02)


def test_tuning_selects_the_best_setting_on_validation_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (
        ("DBSCAN_RADII", (0.01, 0.1, 0.15)),
        ("DBSCAN_MIN_SAMPLES", (2, 8)),
        ("HDBSCAN_MIN_SIZES", (3, 15)),
    ):
        monkeypatch.setattr(module, name, few)
    sets = [blobs(seed) for seed in range(3)]
    for best in (tune_dbscan, tune_hdbscan):
        baseline, name = best(sets)
        assert all(score(labels_true, baseline(X)).mr == 0 for X, labels_true in sets)
        assert name
    baseline, _ = tune_dbscan([ring_in_ring()])
    assert score(ring_in_ring()[1], baseline(ring_in_ring()[0])).mr == 0
    with pytest.raises(ValueError, match="sets is empty; expected at least one"):
        tune_dbscan([])


def test_few_and_duplicate_points_are_supported() -> None:
    for X in (np.zeros((6, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])):
        assert len(k_means(X, 2)) == len(k_means_silhouette(X, 5)) == len(dbscan(X, 0.1, 2)) == len(X)
        assert len(hdbscan(X, 3, allow_single_cluster=True)) == len(X)
