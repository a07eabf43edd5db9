from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from entourage.cluster.tables import candidates as module
from entourage.cluster.tables.candidates import METHODS, gaussian_mixture, k_means, propose, relabel, split_tree
from entourage.cluster.tables.prepare import PreparedTable


def blobs(n: int = 120, k: int = 3, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.arange(n) % k
    return 6 * rng.normal(size=(k, d))[truth] + rng.normal(size=(n, d)), truth


def best(found: list[module.Candidate], truth: np.ndarray, name: str) -> float:
    return max(adjusted_rand_score(truth, c.labels) for c in found if name in c.methods)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_finds_separate_clusters(name: str) -> None:
    X, truth = blobs()
    found = propose(PreparedTable(X - X.mean(0)), 8)
    if name != "principal k-means":  # not used if all components are leading
        assert best(found, truth, name) > 0.95


def test_candidates_are_distinct_and_have_all_clusters() -> None:
    X, _ = blobs()
    found = propose(PreparedTable(X), 8)
    assert len({c.labels.tobytes() for c in found}) == len(found)
    for candidate in found:
        assert np.unique(candidate.labels).tolist() == list(range(candidate.k))
    assert [c.k for c in found] == sorted(c.k for c in found)
    assert {c.k for c in found} == set(range(1, 9))


def test_linkage_finds_concentric_rings() -> None:
    X, truth = make_circles(200, factor=0.5, noise=0.03, random_state=0)
    found = propose(PreparedTable(X), 4)
    for name in ("single", "density linkage", "density peaks", "spectral"):
        assert best(found, truth, name) == 1


def test_relabel_numbers_clusters_by_their_first_item() -> None:
    assert relabel(np.array([7, 2, 2, 9, 7])).tolist() == [0, 1, 1, 2, 0]


def test_k_means_decreases_the_scatter_to_a_fixed_point() -> None:
    X, truth = blobs(d=2)
    X[:, 1] += 30 * truth
    start = np.where(np.random.default_rng(1).random(len(X)) < 0.2, 0, truth)
    labels = k_means(X, start)
    centers = np.stack([X[labels == c].mean(0) for c in range(3)])
    nearest = ((X[:, None] - centers) ** 2).sum(2).argmin(1)
    assert nearest.tolist() == labels.tolist()
    assert adjusted_rand_score(truth, labels) == 1


def test_the_mixture_agrees_with_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 300)
    X = rng.normal(size=(600, 2)) * np.where(truth, 1, 3)[:, None] * [1.0, 0.3] + np.where(truth, 2.5, 0)[:, None] * [
        0,
        1,
    ]
    ours = gaussian_mixture(X, k_means(X, truth))
    theirs = GaussianMixture(2, means_init=[[0, 0], [0, 2.5]], random_state=0).fit_predict(X)
    assert adjusted_rand_score(ours, theirs) > 0.9


def test_small_branches_of_a_tree_are_not_clusters() -> None:
    X, truth = blobs(60, 2)
    X = np.concatenate([X, X[:2] + 40])  # two distant items
    prepared = PreparedTable(X)
    splits = list(split_tree(prepared, linkage(prepared.condensed, "single"), 2, min_size=5))
    assert len(splits) == 1
    assert adjusted_rand_score(truth, splits[0][:60]) == 1


@pytest.mark.parametrize("n", [6, 7, 9])
def test_few_items_and_one_column_are_accepted(n: int) -> None:
    for d in (1, 2, 30):
        found = propose(PreparedTable(np.random.default_rng(n).normal(size=(n, d))), 50)
        assert {c.k for c in found} >= {1, 2, 3}
