from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from entourage.game import NeighborGraph, NeighborSearch
from entourage.game.metric_search import DistinctSearch, MetricSearch


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 4))


def manhattan(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).sum())


@pytest.mark.parametrize("metric", ["manhattan", manhattan, "precomputed"])
def test_neighbours_are_those_of_scikit_learn(points: np.ndarray, metric: object) -> None:
    given = pairwise_distances(points, metric="manhattan") if metric == "precomputed" else points
    found = MetricSearch(given, 5, metric).query_self()  # type: ignore[arg-type]
    distance, index = NearestNeighbors(n_neighbors=5, metric="manhattan").fit(points).kneighbors()
    np.testing.assert_array_equal(found.index.numpy(), index)
    np.testing.assert_allclose(found.distance.numpy(), distance, rtol=1e-12)


def test_queries_are_compared_with_all_points(points: np.ndarray) -> None:
    found = MetricSearch(points[10:], 3, "chebyshev").query(points[:10])
    reference = NearestNeighbors(n_neighbors=3, metric="chebyshev").fit(points[10:])
    np.testing.assert_array_equal(found.index.numpy(), reference.kneighbors(points[:10])[1])


def test_sparse_points_have_the_graph_of_dense_ones() -> None:
    points = np.random.default_rng(1).normal(size=(60, 12))
    points *= np.abs(points) > 0.5
    for affinity in ("self_tuning", "gaussian", "cosine"):
        options = {"affinity": affinity, "negatives": "clamp"}
        dense = NeighborGraph(torch.from_numpy(points), 6, **options)  # type: ignore[arg-type]
        graph = NeighborGraph(sparse.csr_matrix(points), 6, **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(graph.w.toarray(), dense.w.toarray(), atol=1e-5)
        queries = points[:4] * 1.01
        np.testing.assert_allclose(
            graph.weights_to(sparse.csr_matrix(queries)).toarray(),
            dense.weights_to(torch.from_numpy(queries)).toarray(),
            atol=1e-5,
        )


@pytest.mark.parametrize("kind", ["dense", "sparse", "precomputed"])
def test_copies_are_joined_to_each_other_and_to_other_points(points: np.ndarray, kind: str) -> None:
    repeated = np.repeat(points, 10, axis=0)
    given = {
        "dense": torch.from_numpy(repeated),
        "sparse": sparse.csr_matrix(repeated),
        "precomputed": pairwise_distances(repeated, metric="manhattan"),
    }[kind]
    graph = NeighborGraph(given, 7, metric="precomputed" if kind == "precomputed" else "euclidean")
    single, _ = connected_components(NeighborGraph(torch.from_numpy(points), 7).w)
    parts, component = connected_components(graph.w)
    assert parts == single
    assert (component.reshape(-1, 10) == component[::10, None]).all()
    assert np.diff(graph.w.indptr).max() < 60  # no copy is a hub
    queries = given[:3] if kind != "dense" else torch.from_numpy(repeated[:3])
    assert graph.weights_to(queries).shape == (3, 600)
    assert pickle.loads(pickle.dumps(graph)).w.shape == (600, 600)


@pytest.mark.parametrize("times", [3, 7, 10])
def test_copies_do_not_separate_points_that_have_more_neighbours_than_copies(points: np.ndarray, times: int) -> None:
    repeated = torch.from_numpy(np.repeat(points, times, axis=0))
    single, _ = connected_components(NeighborGraph(torch.from_numpy(points), 11).w)
    parts, _ = connected_components(NeighborGraph(repeated, 11).w)
    assert parts == single


def test_a_few_copies_do_not_change_the_search(points: np.ndarray) -> None:
    points[1] = points[0]
    graph = NeighborGraph(torch.from_numpy(points), 7)
    assert isinstance(graph.search, NeighborSearch)


def test_equal_points_alone_form_a_ring() -> None:
    found = DistinctSearch(NeighborSearch(torch.zeros(5, 2), 3), 3).query_self()
    assert found.index.numpy().ravel().tolist() == [1, 2, 3, 4, 0]


def test_a_point_without_copies_keeps_its_nearest_points() -> None:
    points = torch.tensor([[0.0], [0.0], [0.0], [0.0], [1.0], [3.0]])
    found = DistinctSearch(NeighborSearch(points, 2), 2).query_self()
    assert found.index[4].tolist() == [0, 5]
    assert found.index[0].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metric": "manhattan", "affinity": "cosine"},
            r"affinity is 'cosine'.*; expected 'self_tuning' or 'gaussian'",
        ),
        ({"metric": "precomputed"}, r"X: the distances are of shape \(60, 4\); expected a dense square matrix"),
    ],
)
def test_impossible_metrics_are_rejected(points: np.ndarray, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborGraph(points, 5, **options)  # type: ignore[arg-type]


def test_negative_and_sparse_distances_and_sparse_correlations_are_rejected(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"X: .* -1; expected numbers of 0 or more"):
        NeighborGraph(-np.ones((3, 3)), 2, metric="precomputed")
    with pytest.raises(ValueError, match=r"X: .*; expected a dense square matrix"):
        NeighborGraph(sparse.eye_array(3).tocsr(), 2, metric="precomputed")
    with pytest.raises(ValueError, match=r"affinity is 'pearson'.*; expected 'self_tuning', 'gaussian' or 'cosine'"):
        NeighborGraph(sparse.csr_matrix(points), 2, affinity="pearson")
    with pytest.raises(ValueError, match=r"metric is 'manhattan'.*; expected 'euclidean', or an array"):
        NeighborGraph(torch.from_numpy(points), 2, metric="manhattan")
