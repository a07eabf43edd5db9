"""Neighbour graphs against a dense reference implementation, option by option."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from entourage.game import NeighborGraph, cosine, pearson
from entourage.game.graph import default_n_neighbors

Floats = NDArray[np.floating]
POINTS = np.random.default_rng(0).normal(size=(60, 4))


def distances(a: Floats, b: Floats) -> Floats:
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2))


def normalize_rows(points: Floats, affinity: str) -> Floats:
    if affinity == "pearson":
        points = points - points.mean(axis=1, keepdims=True)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def reference_graph(
    points: Floats,
    k: int,
    *,
    affinity: str = "self_tuning",
    squared: bool = True,
    bandwidth: float | None = None,
    negatives: str = "error",
    symmetrize: str = "mean",
    normalize: bool = True,
) -> Floats:
    """Build the graph from n x n arrays only."""
    n = len(points)
    d = distances(*[normalize_rows(points, affinity) if affinity in ("cosine", "pearson") else points] * 2)
    np.fill_diagonal(d, np.inf)
    nearest = np.argsort(d, axis=1)[:, :k]
    chosen = np.zeros((n, n), dtype=bool)
    np.put_along_axis(chosen, nearest, True, axis=1)
    np.fill_diagonal(d, 0)
    sigma = np.take_along_axis(d, nearest, axis=1)[:, min(7, k) - 1]
    if affinity in ("cosine", "pearson"):
        w = 1 - d**2 / 2
        if negatives == "shift":
            w = w - min(w[chosen].min(), 0)
        w = w.clip(0)
    elif affinity == "gaussian":
        w = np.exp(-(d**2) / (2 * (np.mean(sigma**2) if bandwidth is None else bandwidth**2)))
    else:
        w = np.exp(-(d**2 if squared else d) / np.outer(sigma, sigma))
    w = w * chosen
    w = {"max": np.maximum(w, w.T), "mean": (w + w.T) / 2, "mutual": np.minimum(w, w.T)}[symmetrize]
    degree = np.where(w.sum(axis=1) > 0, w.sum(axis=1), 1) if normalize else np.ones(n)
    return w / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"squared": False},
        {"symmetrize": "max"},
        {"symmetrize": "mutual"},
        {"normalize": False},
        {"affinity": "gaussian"},
        {"affinity": "gaussian", "bandwidth": 0.7},
        {"affinity": "cosine", "negatives": "clamp"},
        {"affinity": "cosine", "negatives": "shift"},
        {"affinity": "pearson", "negatives": "clamp", "symmetrize": "mutual"},
        {"affinity": "pearson", "negatives": "shift", "normalize": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [3, 6, 40])
def test_graph_equals_the_reference(options: dict[str, Any], k: int) -> None:
    graph = NeighborGraph(torch.from_numpy(POINTS), k, **options)
    assert graph.w.dtype == np.float32
    np.testing.assert_allclose(graph.w.toarray(), reference_graph(POINTS, k, **options), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(("n_neighbors", "k"), [("auto", 6), (None, 59), (1000, 59), (np.int64(5), 5)])
def test_number_of_neighbours(n_neighbors: Any, k: int) -> None:
    graph = NeighborGraph(torch.from_numpy(POINTS), n_neighbors)
    assert graph.n_neighbors == k
    np.testing.assert_allclose(graph.w.toarray(), reference_graph(POINTS, k), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"symmetrize": "max"}, {"affinity": "cosine", "negatives": "clamp"}], ids=str)
def test_graph_is_symmetric_non_negative_and_without_loops(options: dict[str, Any]) -> None:
    w = NeighborGraph(torch.from_numpy(POINTS), **options).w
    assert w.has_sorted_indices
    assert abs(w - w.T).max() <= 1e-7
    assert w.data.min() > 0
    assert not w.diagonal().any()


@pytest.mark.parametrize(
    ("n", "k"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (8, 4), (1000, 10), (1024, 11), (10**6, 20)]
)
def test_default_n_neighbors(n: int, k: int) -> None:
    assert default_n_neighbors(n) == k


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("affinity", ["self_tuning", "gaussian", "cosine", "pearson"])
def test_smallest_graphs(n: int, affinity: Any) -> None:
    points = torch.tensor([[1.0, 2.0, 4.0], [1.1, 2.5, 5.0], [0.9, 2.1, 4.5]])[:n]
    w = NeighborGraph(points, affinity=affinity).w
    assert w.shape == (n, n)
    assert np.isfinite(w.data).all()
    assert w.nnz == n * (n - 1)


@pytest.mark.parametrize("k", [3, 9, 12])
def test_duplicates_and_other_points_are_neighbours_with_finite_weights(k: int) -> None:
    w = NeighborGraph(torch.from_numpy(np.repeat(POINTS[:6], 10, axis=0)), k).w.tocoo()
    assert np.isfinite(w.data).all()
    assert (w.data > 0).all()
    # Each point has nine copies: a search for k < 10 points alone would find nothing else.
    assert (w.row // 10 != w.col // 10).any()
    assert (w.row // 10 == w.col // 10).any()


def test_only_duplicates_give_equal_weights() -> None:
    graph = NeighborGraph(torch.ones(20, 3), 4, symmetrize="max", normalize=False)
    assert (graph.w.data == 1).all()


def test_farthest_neighbour_is_the_scale_if_seven_are_duplicates() -> None:
    points = torch.tensor([0.0, 300.0]).repeat_interleave(9)[:, None]
    w = NeighborGraph(points, 10, symmetrize="max", normalize=False).w.tocoo()  # eight copies, and two of the others
    far = w.row // 9 != w.col // 9
    assert far.any()
    np.testing.assert_allclose(w.data[far], np.exp(-1), rtol=1e-5)
    np.testing.assert_array_equal(w.data[~far], 1)


def test_the_scale_of_points_with_many_duplicates_is_the_distance_to_other_points() -> None:
    points = torch.tensor([[0.0]] * 9 + [[300.0], [-600.0]])
    w = NeighborGraph(points, 2, symmetrize="max", normalize=False).w
    # Neighbours: of each duplicate another one and the point at 300, of which every duplicate's scale is 300; of the
    # point at 300 a duplicate and the point at -600, whose scale are 900.
    np.testing.assert_allclose(w[0, 9], np.exp(-(300**2) / (300 * 900)), rtol=1e-5)
    np.testing.assert_allclose(w[0, 1], 1)


@pytest.mark.parametrize(("affinity", "dense"), [("cosine", cosine), ("pearson", pearson)])
@pytest.mark.parametrize("undirected", [[3], [0, 1, 2, 3], list(range(59)), list(range(60))], ids=len)
def test_points_without_direction_have_no_edges(affinity: Any, dense: Any, undirected: list[int]) -> None:
    points = torch.from_numpy(POINTS).clone()
    points[undirected] = 0.0 if affinity == "cosine" else 2.5
    graph = NeighborGraph(points, None, affinity=affinity, negatives="clamp", normalize=False)
    expected = dense(points).clamp_min(0).fill_diagonal_(0)
    np.testing.assert_allclose(graph.w.toarray(), expected.numpy(), atol=1e-6)
    queries = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 4)))
    queries[[0, 4]] = points[undirected[0]]
    actual = graph.weights_to(queries).toarray()
    assert actual.shape == (5, 60)
    assert not actual[[0, 4]].any()
    assert not actual[:, undirected].any()
    together = dense(torch.cat([queries, points])).clamp_min(0)[1:4, 5:]
    if len(undirected) < 50:
        edges = actual[1:4] > 0  # all but the farthest
        np.testing.assert_allclose(actual[1:4], together.numpy() * edges, atol=1e-6)


@pytest.mark.parametrize("n_directed", [1, 3])
def test_queries_reach_all_points_with_a_direction(n_directed: int) -> None:
    points = torch.zeros(8, 2)
    points[:n_directed] = torch.tensor([[1.0, 0], [0.8, 0.6], [0.6, 0.8]])[:n_directed]
    graph = NeighborGraph(points, 5, affinity="cosine", normalize=False)
    assert graph.w[:, n_directed:].nnz == 0
    weights = graph.weights_to(points[:1]).toarray()[0, :n_directed]
    np.testing.assert_allclose(weights, [1, 0.8, 0.6][:n_directed], atol=1e-6)


def test_points_without_direction_do_not_replace_neighbours() -> None:
    # With cosines below 0.5, these points are farther from each other than from the origin.
    apart = np.eye(12) + 0.05
    expected = NeighborGraph(torch.from_numpy(apart), 4, affinity="cosine").w.toarray()
    padded = np.insert(apart, [0, 5, 5, 5, 12], 0.0, axis=0)
    graph = NeighborGraph(torch.from_numpy(padded), 4, affinity="cosine")
    directed = np.flatnonzero(padded.any(axis=1))
    np.testing.assert_allclose(graph.w.toarray()[np.ix_(directed, directed)], expected)
    assert graph.w.nnz == np.count_nonzero(expected)
    assert (graph.weights_to(torch.from_numpy(apart)) > 0).sum(axis=1).min() == 4
    restored = pickle.loads(pickle.dumps(graph))
    assert (restored.weights_to(torch.from_numpy(apart)) != graph.weights_to(torch.from_numpy(apart))).nnz == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(5))
def test_rounded_right_angles_are_not_negative(dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=dtype)).Q
    graph = NeighborGraph(basis, None, affinity="cosine")
    assert graph.w.nnz == 0
    np.testing.assert_allclose(graph.weights_to(basis[:9]).toarray(), np.eye(9, 30), atol=1e-6)


@pytest.mark.parametrize("affinity", ["self_tuning", "gaussian"])
@pytest.mark.parametrize("normalize", [True, False])
def test_outlier_near_a_dense_cluster_keeps_its_edges(affinity: Any, normalize: bool) -> None:
    points = np.concatenate([POINTS * 1e-3, np.full((1, 4), 1e3)])
    w = NeighborGraph(torch.from_numpy(points), 6, affinity=affinity, normalize=normalize).w
    assert (w[[60]].data > 0).all()
    assert w[[60]].nnz == 6
    assert connected_components(w)[0] == connected_components(w[:60, :60])[0]


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
@pytest.mark.parametrize("affinity", ["self_tuning", "gaussian", "cosine"])
def test_graph_is_invariant_to_the_unit_of_the_data(scale: float, affinity: Any) -> None:
    expected = NeighborGraph(torch.from_numpy(POINTS).float(), 6, affinity=affinity, negatives="clamp").w
    scaled = NeighborGraph(torch.from_numpy(POINTS * scale).float(), 6, affinity=affinity, negatives="clamp").w
    np.testing.assert_allclose(scaled.toarray(), expected.toarray(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("affinity", ["self_tuning", "gaussian", "cosine", "pearson"])
def test_weights_to_new_points_equal_the_reference(affinity: Any) -> None:
    k, queries = 5, np.random.default_rng(1).normal(size=(9, 4))
    graph = NeighborGraph(torch.from_numpy(POINTS), k, affinity=affinity, negatives="clamp")
    unit = affinity in ("cosine", "pearson")
    a, b = (normalize_rows(p, affinity) if unit else p for p in (queries, POINTS))
    d = distances(a, b)
    nearest = np.argsort(d, axis=1)[:, :k]
    sigma_q = np.sort(d, axis=1)[:, k - 1]
    sigma_p = np.sort(distances(b, b), axis=1)[:, k]
    if unit:
        w = (1 - d**2 / 2).clip(0)
    elif affinity == "gaussian":
        w = np.exp(-(d**2) / (2 * np.mean(sigma_p**2)))
    else:
        w = np.exp(-(d**2) / np.outer(sigma_q, sigma_p))
    chosen = np.zeros_like(d)
    np.put_along_axis(chosen, nearest, 1, axis=1)
    degree = reference_graph(POINTS, k, affinity=affinity, negatives="clamp", normalize=False).sum(axis=1)
    actual = graph.weights_to(torch.from_numpy(queries))
    assert actual.shape == (9, 60)
    np.testing.assert_allclose(actual.toarray(), w * chosen / np.sqrt(degree), rtol=2e-4, atol=1e-6)


def test_a_query_equal_to_a_point_has_its_largest_weight_there() -> None:
    graph = NeighborGraph(torch.from_numpy(POINTS), 6, normalize=False)
    w = graph.weights_to(torch.from_numpy(POINTS[:20])).toarray()
    assert (w.argmax(axis=1) == np.arange(20)).all()
    np.testing.assert_allclose(w.max(axis=1), 1)


def test_a_query_equal_to_duplicates_has_edges_to_them() -> None:
    graph = NeighborGraph(torch.from_numpy(np.repeat(POINTS[:6], 10, axis=0)), 5)
    w = graph.weights_to(torch.from_numpy(POINTS[:1])).tocoo()
    assert np.isfinite(w.data).all()
    assert (w.data > 0).all()
    assert w.col[w.data.argmax()] < 10


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
def test_query_weights_do_not_depend_on_the_batch(negatives: Any) -> None:
    graph = NeighborGraph(torch.from_numpy(POINTS), 40, affinity="cosine", negatives=negatives)
    queries = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 4)))
    together = graph.weights_to(queries).toarray()
    separately = np.concatenate([graph.weights_to(query[None]).toarray() for query in queries])
    np.testing.assert_allclose(separately, together, rtol=1e-5, atol=1e-7)


def test_a_pickled_graph_gives_equal_weights() -> None:
    graph = NeighborGraph(torch.from_numpy(POINTS))
    queries = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 4)))
    expected = graph.weights_to(queries)
    restored = pickle.loads(pickle.dumps(graph))
    assert (restored.w != graph.w).nnz == 0
    assert (restored.weights_to(queries) != expected).nnz == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors is 0; expected .* 'auto' or None"),
        ({"n_neighbors": -3}, "n_neighbors is -3; expected"),
        ({"n_neighbors": True}, "n_neighbors is True; expected"),
        ({"n_neighbors": 2.5}, "n_neighbors is 2.5; expected"),
        ({"n_neighbors": "many"}, "n_neighbors is 'many'; expected"),
        ({"affinity": "rbf"}, "affinity is 'rbf'; expected one of self_tuning, gaussian, cosine, pearson"),
        ({"symmetrize": "min"}, "symmetrize is 'min'; expected one of max, mean, mutual"),
        ({"affinity": "cosine", "negatives": "drop"}, "negatives is 'drop'; expected one of error, clamp, shift"),
        ({"affinity": "cosine", "n_neighbors": None}, r"cosine has \d+ negative similarities; expected negatives="),
        (
            {"affinity": "pearson", "n_neighbors": None},
            r"pearson has \d+ negative similarities; expected negatives='clamp' or 'shift'",
        ),
        ({"affinity": "gaussian", "bandwidth": -1.0}, "bandwidth is -1.0; expected a number above 0"),
        ({"recall": 0.0}, "recall is 0.0; expected .* above 0"),
    ],
)
def test_bad_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborGraph(torch.from_numpy(POINTS), **options)
