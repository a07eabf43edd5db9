"""Neighbour search against brute force, for data of any location and scale."""

import pickle

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import Tensor

from entourage.game import NeighborSearch
from entourage.game.neighbors import Neighbors

Floats = NDArray[np.floating]


def normal(n: int, d: int = 5, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


def brute_force(queries: Tensor, points: Tensor, k: int, *, exclude_self: bool) -> Floats:
    """Return the k smallest distances of each query, in order, from differences in float64."""
    scale = float(points.abs().max()) or 1.0
    distance = cdist(queries.double() / scale, points.double() / scale) * scale
    if exclude_self:
        np.fill_diagonal(distance, np.inf)
    return np.sort(distance, axis=1)[:, :k]


def assert_nearest(result: Neighbors, queries: Tensor, points: Tensor, k: int, *, exclude_self: bool) -> None:
    """Assert that the distances are the smallest, in order, and those of the returned points."""
    expected = brute_force(queries, points, k, exclude_self=exclude_self)
    unit = float((points.double() - points.double().mean(dim=0)).abs().max()) or 1.0
    # Two roundings to float32 of numbers of the size of the spread: the accuracy limit of any search in float32.
    close = {"rtol": 1e-5, "atol": 4e-7 * unit}
    np.testing.assert_allclose(result.distance.double().numpy(), expected, **close)
    differences = (points.double()[result.index] - queries.double()[:, None]) / unit
    np.testing.assert_allclose(differences.square().sum(dim=2).sqrt().numpy() * unit, expected, **close)
    assert all(len(set(row)) == k for row in result.index.tolist())
    if exclude_self:
        assert (result.index != torch.arange(len(queries))[:, None]).all()


def far_clusters(spread: float) -> Floats:
    points = normal(300, 8)
    points[:100] += spread
    points[100:200, 0] -= spread
    return points


DATA = {
    "normal": torch.from_numpy(normal(200)).float(),
    "float64": torch.from_numpy(normal(200)),
    "duplicates": torch.from_numpy(np.repeat(normal(20), 10, axis=0)).float(),
    "one point many times": torch.ones(40, 3),
    "integers on a line": torch.arange(50.0)[:, None],
    "far from the origin": torch.from_numpy(normal(200) * 100 + 1e6).float(),
    "far from the origin, float64": torch.from_numpy(normal(200) + 1e6),
    "huge": torch.from_numpy(normal(200) * 1e30).float(),
    "tiny": torch.from_numpy(normal(200) * 1e-30).float(),
    "huge, float64": torch.from_numpy(normal(200) * 1e150),
    "two points": torch.tensor([[0.0, 1.0], [3.0, 5.0]]),
    "many columns": torch.from_numpy(normal(60, 700)).float(),
    "clusters far apart": torch.from_numpy(far_clusters(1e2)),
    "clusters very far apart": torch.from_numpy(far_clusters(1e4)),
    "an outlier": torch.cat([torch.from_numpy(normal(200)).float(), torch.full((1, 5), 1e4)]),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("k", [0, 1, 7, None])
def test_exact_search_equals_brute_force(name: str, k: int | None) -> None:
    points = DATA[name]
    k = len(points) - 1 if k is None else min(k, len(points) - 1)
    search = NeighborSearch(points, k)
    assert search.exact
    result = search.query_self()
    assert result.index.shape == result.distance.shape == (len(points), k)
    assert (result.index.dtype, result.distance.dtype) == (torch.int64, points.dtype)
    assert_nearest(result, points, points, k, exclude_self=True)


@pytest.mark.parametrize("name", DATA)
def test_query_finds_the_nearest_points(name: str) -> None:
    points = DATA[name]
    k = min(6, len(points))
    # Some queries are points, others midpoints of two points.
    queries = torch.cat([points[:9], (points[:9] / 2 + points[-9:] / 2)[: len(points)]])
    assert_nearest(NeighborSearch(points, k).query(queries), queries, points, k, exclude_self=False)


def test_queries_of_another_dtype() -> None:
    points, queries = torch.from_numpy(normal(50)).float(), torch.from_numpy(normal(9, seed=1))
    result = NeighborSearch(points, 3).query(queries)
    assert result.distance.dtype == torch.float32
    assert_nearest(result, queries.float(), points, 3, exclude_self=False)


def test_query_with_k_equal_n_returns_all_points_itself_first() -> None:
    points = torch.from_numpy(normal(30))
    result = NeighborSearch(points, 30).query(points)
    assert torch.equal(result.index[:, 0], torch.arange(30))
    assert (result.distance[:, 0] == 0).all()
    assert torch.equal(result.index.sort(dim=1).values, torch.arange(30).expand(30, 30))


def test_search_is_exact_for_few_points_only() -> None:
    assert NeighborSearch(torch.zeros(10_000, 1), 3).exact
    assert not NeighborSearch(torch.zeros(10_001, 1), 3).exact
    assert NeighborSearch(torch.zeros(10_001, 1), 3, recall=1).exact
    assert NeighborSearch(torch.zeros(10_001, 1), 10_000).exact


def clustered(n: int) -> Tensor:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 16)) * 4
    return torch.from_numpy(centres[rng.integers(40, size=n)] + rng.normal(size=(n, 16))).float()


def approximate_search(points: Tensor, k: int, recall: float = 0.97) -> NeighborSearch:
    search = NeighborSearch(points, k, recall)
    search.exact = False
    return search


def recall_of(result: Neighbors, expected: Neighbors) -> float:
    hits = (result.index[:, :, None] == expected.index[:, None, :]).any(dim=2)
    return float(hits.float().mean())


@pytest.fixture(scope="module")
def points() -> Tensor:
    return clustered(12_500)


@pytest.fixture(scope="module")
def exact(points: Tensor) -> tuple[NeighborSearch, Neighbors]:
    search = NeighborSearch(points, 10, recall=1)
    return search, search.query_self()


@pytest.mark.parametrize("recall", [0.8, 0.97, 0.995])
def test_approximate_search_reaches_the_recall(
    points: Tensor, exact: tuple[NeighborSearch, Neighbors], recall: float
) -> None:
    search = approximate_search(points, 10, recall)
    result = search.query_self()
    # The sample of 512 queries estimates the recall to about one percent.
    assert recall_of(result, exact[1]) >= recall - 0.01
    assert (result.index != torch.arange(len(points))[:, None]).all()
    assert (result.distance.diff(dim=1) >= 0).all()
    queries = clustered(13_000)[12_500:]
    assert recall_of(search.query(queries), exact[0].query(queries)) >= recall - 0.03
    assert all(cells.n_probes < len(cells.centers) / 2 for cells in search._indexes)


def test_approximate_search_returns_exact_distances(points: Tensor) -> None:
    result = approximate_search(points, 5).query_self()
    expected = (points.double()[result.index[:500]] - points.double()[:500, None]).square().sum(dim=2).sqrt()
    torch.testing.assert_close(result.distance[:500].double(), expected, rtol=1e-5, atol=1e-6)


def test_higher_recall_searches_more_cells(points: Tensor) -> None:
    n_probes = [approximate_search(points, 10, recall)._indexes[0].n_probes for recall in (0.5, 0.9, 0.99)]
    assert n_probes == sorted(n_probes)
    assert 1 <= n_probes[0] < n_probes[-1]


def test_search_is_deterministic(points: Tensor) -> None:
    torch.manual_seed(1)
    first = approximate_search(points[:4000], 8).query_self()
    torch.manual_seed(2)
    second = approximate_search(points[:4000], 8).query_self()
    assert torch.equal(first.index, second.index)
    assert torch.equal(first.distance, second.distance)


def test_only_duplicates_have_distance_0() -> None:
    result = approximate_search(torch.full((2000, 4), 3.5), 6).query_self()
    assert (result.distance == 0).all()
    assert (result.index != torch.arange(2000)[:, None]).all()
    assert all(len(set(row)) == 6 for row in result.index.tolist())


@pytest.mark.parametrize("spread", [20, 1e4])
def test_recall_with_large_clusters_and_outliers(spread: float) -> None:
    rng = np.random.default_rng(0)
    clusters = np.repeat(rng.normal(size=(3, 6)) * spread, 1300, axis=0) + rng.normal(size=(3900, 6))
    points = torch.from_numpy(np.concatenate([clusters, rng.normal(size=(5, 6)) * 15 * spread]))
    result = approximate_search(points, 8).query_self()
    farthest = brute_force(points, points, 8, exclude_self=True)[:, -1:] * 1.001  # ties are broken by rounding
    assert (result.distance.numpy() <= farthest).mean() >= 0.96
    assert result.distance.isfinite().all()
    assert all(len(set(row)) == 8 for row in result.index.tolist())


def test_more_neighbours_than_points_in_a_cell() -> None:
    points = clustered(1500)
    result = approximate_search(points, 400, 0.9).query_self()
    assert recall_of(result, NeighborSearch(points, 400, recall=1).query_self()) >= 0.89
    assert all(len(set(row)) == 400 for row in result.index.tolist())


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "cells"])
def test_pickle_contains_no_index_and_gives_equal_results(exact: bool) -> None:
    points, queries = clustered(2000), clustered(2100)[2000:]
    search = NeighborSearch(points, 5)
    search.exact = exact
    before = search.query_self(), search.query(queries)
    pickled = pickle.dumps(search)
    assert len(pickled) < points.numel() * 4 + 5000  # the points without the indexes
    restored = pickle.loads(pickled)
    assert "_cells" not in restored.__dict__
    for old, new in zip(before, (restored.query_self(), restored.query(queries)), strict=True):
        assert torch.equal(old.index, new.index)
        assert torch.equal(old.distance, new.distance)


@pytest.mark.parametrize(
    ("k", "recall", "message"),
    [
        (-1, 0.97, "n_neighbors is -1; expected 0 to 5"),
        (6, 0.97, "n_neighbors is 6; expected 0 to 5"),
        (2, 0.0, "recall is 0.0; expected .* above 0 and at most 1"),
        (2, 1.5, "recall is 1.5; expected"),
    ],
)
def test_bad_input_raises(k: int, recall: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborSearch(torch.zeros(5, 2), k, recall)


def test_search_is_exact_if_an_index_is_not_faster() -> None:
    points = torch.randn(3000, 40, generator=torch.Generator().manual_seed(0))  # distances are about equal
    search = approximate_search(points, 5)
    assert search._indexes is None
    expected = NeighborSearch(points, 5, recall=1).query_self()
    assert torch.equal(search.query_self().index, expected.index)
    assert torch.equal(search.query(points[:9]).index[:, 0], torch.arange(9))
