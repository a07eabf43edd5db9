from __future__ import annotations

import numpy as np
import pytest

from entourage.cluster import evaluation as rivals
from entourage.cluster.evaluation import (
    best_dbscan,
    best_hdbscan,
    dbscan,
    hdbscan,
    k_means,
    k_means_silhouette,
    random_clusters,
    score,
)


def blobs(seed: int = 0, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(k), 20)
    return 4 * np.stack([truth, truth % 2], axis=1) + 0.2 * rng.normal(size=(20 * k, 2)), truth


def ring_in_ring() -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(t), np.sin(t)], axis=1)
    return np.concatenate([circle, 0.2 * circle]), np.repeat([0, 1], 40)


def test_each_finds_what_it_is_made_for() -> None:
    X, truth = blobs()
    rings, inner = ring_in_ring()
    assert score(truth, k_means(X, 3)).mr == 0
    assert score(truth, k_means_silhouette(X, 5)).mr == 0
    assert score(truth, dbscan(X, 0.15, 3)).mr == 0
    assert score(truth, hdbscan(X, 5, single=False)).mr == 0
    assert score(inner, k_means(rings, 2)).mr > 0.2
    assert score(inner, dbscan(rings, 0.1, 3)).mr == 0


def test_a_radius_is_a_share_of_the_extent() -> None:
    X, _ = blobs()
    np.testing.assert_array_equal(dbscan(1000 * X, 0.1, 3), dbscan(X, 0.1, 3))


def test_chance_knows_nothing_but_its_seed() -> None:
    X, truth = blobs()
    np.testing.assert_array_equal(random_clusters(X, 5, seed=1), random_clusters(X, 5, seed=1))
    drawn = [random_clusters(X, 5, seed=s) for s in range(200)]
    assert {len(np.unique(labels)) for labels in drawn} == {1, 2, 3, 4, 5}
    assert np.mean([score(truth, labels).ari for labels in drawn]) == pytest.approx(0, abs=0.02)


def test_the_best_setting_is_that_of_the_validation_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("RADII", (0.01, 0.1, 0.15)), ("CROWDS", (2, 8)), ("SIZES", (3, 15))):
        monkeypatch.setattr(rivals, name, few)
    sets = [blobs(seed) for seed in range(3)]
    for best in (best_dbscan, best_hdbscan):
        rival, name = best(sets)
        assert all(score(truth, rival(X)).mr == 0 for X, truth in sets)
        assert name
    rival, _ = best_dbscan([ring_in_ring()])
    assert score(ring_in_ring()[1], rival(ring_in_ring()[0])).mr == 0
    with pytest.raises(ValueError, match="no validation sets"):
        best_dbscan([])


def test_few_points_and_copies_are_no_reason_to_fail() -> None:
    for X in (np.zeros((6, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])):
        assert len(k_means(X, 2)) == len(k_means_silhouette(X, 5)) == len(dbscan(X, 0.1, 2)) == len(X)
        assert len(hdbscan(X, 3, single=True)) == len(X)
