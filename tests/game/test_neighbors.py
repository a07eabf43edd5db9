"""The search for neighbours against brute force, wherever the data lie and whatever their scale."""

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
    """The k least distances of each query, nearest first, from differences in float64."""
    scale = float(points.abs().max()) or 1.0
    distance = cdist(queries.double() / scale, points.double() / scale) * scale
    if exclude_self:
        np.fill_diagonal(distance, np.inf)
    return np.sort(distance, axis=1)[:, :k]


def assert_nearest(found: Neighbors, queries: Tensor, points: Tensor, k: int, *, exclude_self: bool) -> None:
    """The distances are the least there are, in order, and are those of the points named."""
    expected = brute_force(queries, points, k, exclude_self=exclude_self)
    unit = float((points.double() - points.double().mean(dim=0)).abs().max()) or 1.0
    # Two roundings to float32 of numbers the size of the data's spread: no search in float32 can know better.
    close = {"rtol": 1e-5, "atol": 4e-7 * unit}
    np.testing.assert_allclose(found.distance.double().numpy(), expected, **close)
    named = (points.double()[found.index] - queries.double()[:, None]) / unit
    np.testing.assert_allclose(named.square().sum(dim=2).sqrt().numpy() * unit, expected, **close)
    assert all(len(set(row)) == k for row in found.index.tolist())
    if exclude_self:
        assert (found.index != torch.arange(len(queries))[:, None]).all()


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
def test_exact_search_is_brute_force(name: str, k: int | None) -> None:
    points = DATA[name]
    k = len(points) - 1 if k is None else min(k, len(points) - 1)
    search = NeighborSearch(points, k)
    assert search.exact
    found = search.query_self()
    assert found.index.shape == found.distance.shape == (len(points), k)
    assert (found.index.dtype, found.distance.dtype) == (torch.int64, points.dtype)
    assert_nearest(found, points, points, k, exclude_self=True)


@pytest.mark.parametrize("name", DATA)
def test_queries_find_their_nearest_points(name: str) -> None:
    points = DATA[name]
    k = min(6, len(points))
    # Some queries are points, some lie between two.
    queries = torch.cat([points[:9], (points[:9] / 2 + points[-9:] / 2)[: len(points)]])
    assert_nearest(NeighborSearch(points, k).query(queries), queries, points, k, exclude_self=False)


def test_queries_of_another_type_are_accepted() -> None:
    points, queries = torch.from_numpy(normal(50)).float(), torch.from_numpy(normal(9, seed=1))
    found = NeighborSearch(points, 3).query(queries)
    assert found.distance.dtype == torch.float32
    assert_nearest(found, queries.float(), points, 3, exclude_self=False)


def test_all_points_can_be_asked_for_and_a_point_is_its_own_nearest_as_a_query() -> None:
    points = torch.from_numpy(normal(30))
    found = NeighborSearch(points, 30).query(points)
    assert torch.equal(found.index[:, 0], torch.arange(30))
    assert (found.distance[:, 0] == 0).all()
    assert torch.equal(found.index.sort(dim=1).values, torch.arange(30).expand(30, 30))


def test_few_points_are_searched_exactly_and_many_in_cells() -> None:
    assert NeighborSearch(torch.zeros(10_000, 1), 3).exact
    assert not NeighborSearch(torch.zeros(10_001, 1), 3).exact
    assert NeighborSearch(torch.zeros(10_001, 1), 3, recall=1).exact
    assert NeighborSearch(torch.zeros(10_001, 1), 10_000).exact


def clustered(n: int) -> Tensor:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 16)) * 4
    return torch.from_numpy(centres[rng.integers(40, size=n)] + rng.normal(size=(n, 16))).float()


def in_cells(points: Tensor, k: int, recall: float = 0.97) -> NeighborSearch:
    search = NeighborSearch(points, k, recall)
    search.exact = False
    return search


def recall_of(found: Neighbors, expected: Neighbors) -> float:
    hits = (found.index[:, :, None] == expected.index[:, None, :]).any(dim=2)
    return float(hits.float().mean())


@pytest.fixture(scope="module")
def points() -> Tensor:
    return clustered(12_500)


@pytest.fixture(scope="module")
def exact(points: Tensor) -> tuple[NeighborSearch, Neighbors]:
    search = NeighborSearch(points, 10, recall=1)
    return search, search.query_self()


@pytest.mark.parametrize("recall", [0.8, 0.97, 0.995])
def test_cells_reach_the_recall_they_promise(
    points: Tensor, exact: tuple[NeighborSearch, Neighbors], recall: float
) -> None:
    search = in_cells(points, 10, recall)
    found = search.query_self()
    # The sample of 512 queries knows the recall to about one percent.
    assert recall_of(found, exact[1]) >= recall - 0.01
    assert (found.index != torch.arange(len(points))[:, None]).all()
    assert (found.distance.diff(dim=1) >= 0).all()
    queries = clustered(13_000)[12_500:]
    assert recall_of(search.query(queries), exact[0].query(queries)) >= recall - 0.03
    assert all(cells.n_probes < len(cells.centers) / 2 for cells in search._indexes)


def test_distances_found_in_cells_are_exact(points: Tensor) -> None:
    found = in_cells(points, 5).query_self()
    expected = (points.double()[found.index[:500]] - points.double()[:500, None]).square().sum(dim=2).sqrt()
    torch.testing.assert_close(found.distance[:500].double(), expected, rtol=1e-5, atol=1e-6)


def test_a_higher_recall_visits_more_cells(points: Tensor) -> None:
    n_probes = [in_cells(points, 10, recall)._indexes[0].n_probes for recall in (0.5, 0.9, 0.99)]
    assert n_probes == sorted(n_probes)
    assert 1 <= n_probes[0] < n_probes[-1]


def test_the_search_is_deterministic(points: Tensor) -> None:
    torch.manual_seed(1)
    first = in_cells(points[:4000], 8).query_self()
    torch.manual_seed(2)
    second = in_cells(points[:4000], 8).query_self()
    assert torch.equal(first.index, second.index)
    assert torch.equal(first.distance, second.distance)


def test_duplicates_alone_are_neighbours_at_distance_0() -> None:
    found = in_cells(torch.full((2000, 4), 3.5), 6).query_self()
    assert (found.distance == 0).all()
    assert (found.index != torch.arange(2000)[:, None]).all()
    assert all(len(set(row)) == 6 for row in found.index.tolist())


@pytest.mark.parametrize("spread", [20, 1e4])
def test_a_few_huge_clusters_and_outliers_are_searched_well(spread: float) -> None:
    rng = np.random.default_rng(0)
    clusters = np.repeat(rng.normal(size=(3, 6)) * spread, 1300, axis=0) + rng.normal(size=(3900, 6))
    points = torch.from_numpy(np.concatenate([clusters, rng.normal(size=(5, 6)) * 15 * spread]))
    found = in_cells(points, 8).query_self()
    farthest = brute_force(points, points, 8, exclude_self=True)[:, -1:] * 1.001  # rounding decides among equals
    assert (found.distance.numpy() <= farthest).mean() >= 0.96
    assert found.distance.isfinite().all()
    assert all(len(set(row)) == 8 for row in found.index.tolist())


def test_more_neighbours_than_a_cell_holds() -> None:
    points = clustered(1500)
    found = in_cells(points, 400, 0.9).query_self()
    assert recall_of(found, NeighborSearch(points, 400, recall=1).query_self()) >= 0.89
    assert all(len(set(row)) == 400 for row in found.index.tolist())


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "cells"])
def test_a_pickle_is_light_and_answers_the_same(exact: bool) -> None:
    points, queries = clustered(2000), clustered(2100)[2000:]
    search = NeighborSearch(points, 5)
    search.exact = exact
    before = search.query_self(), search.query(queries)
    pickled = pickle.dumps(search)
    assert len(pickled) < points.numel() * 4 + 5000  # the points, and no cells
    restored = pickle.loads(pickled)
    assert "_cells" not in restored.__dict__
    for old, new in zip(before, (restored.query_self(), restored.query(queries)), strict=True):
        assert torch.equal(old.index, new.index)
        assert torch.equal(old.distance, new.distance)


@pytest.mark.parametrize(
    ("k", "recall", "message"),
    [
        (-1, 0.97, "-1 neighbours asked of 5 points; expected 0 to 5"),
        (6, 0.97, "6 neighbours asked of 5 points; expected 0 to 5"),
        (2, 0.0, "recall is 0.0; expected a share above 0 and up to 1"),
        (2, 1.5, "recall is 1.5; expected"),
    ],
)
def test_bad_input_is_refused(k: int, recall: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborSearch(torch.zeros(5, 2), k, recall)


def test_where_cells_do_not_pay_the_search_is_exact() -> None:
    points = torch.randn(3000, 40, generator=torch.Generator().manual_seed(0))  # everything is about equally far
    search = in_cells(points, 5)
    assert search._indexes is None
    expected = NeighborSearch(points, 5, recall=1).query_self()
    assert torch.equal(search.query_self().index, expected.index)
    assert torch.equal(search.query(points[:9]).index[:, 0], torch.arange(9))
