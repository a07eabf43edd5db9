"""The inverted file index and the functions that it is built from."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from entourage.game import neighbors as cells
from entourage.game.neighbors import (
    IVFIndex,
    exact_neighbors,
    k_means,
    nearest_center,
    partition,
    squared_distances_to,
    topk_smallest,
)


def normal(n: int, d: int = 4, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).float()


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    columns=st.integers(1, 400),
    fraction=st.floats(0, 1),
    levels=st.sampled_from([1, 3, 1000]),
)
def test_topk_smallest_equals_a_sort(seed: int, rows: int, columns: int, fraction: float, levels: int) -> None:
    # Few levels give many ties, which may be broken arbitrarily: values are compared, and indices must differ.
    values = torch.from_numpy(np.random.default_rng(seed).integers(levels, size=(rows, columns))).float()
    k = round(fraction**3 * columns)  # mostly small, where the two-stage selection is used
    found = topk_smallest(values, k)
    assert found.shape == (rows, k)
    assert torch.equal(values.gather(1, found).sort(dim=1).values, values.sort(dim=1).values[:, :k])
    assert all(len(set(row)) == k for row in found.tolist())


def test_topk_smallest_searches_columns_outside_full_groups() -> None:
    values = torch.ones(1, 16 * 40 + 5)
    values[0, -5:] = 0
    assert set(topk_smallest(values, 5)[0].tolist()) == set(range(640, 645))


def test_topk_smallest_with_infinite_entries() -> None:
    values = torch.full((1, 1000), torch.inf)
    values[0, [3, 500, 999]] = torch.tensor([1.0, -1.0, 0.0])
    assert set(topk_smallest(values, 3)[0].tolist()) == {3, 500, 999}


def test_squared_distances_to_omits_the_norm_of_the_query() -> None:
    queries, points = normal(5), normal(9, seed=1)
    expected = torch.cdist(queries, points).square() - queries.square().sum(dim=1, keepdim=True)
    torch.testing.assert_close(
        squared_distances_to(queries, points, points.square().sum(dim=1)), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("block", [1, 70, 2**23])
def test_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    points = normal(300)
    expected = exact_neighbors(points, points, 5, exclude_self=True), nearest_center(points, points[:7])
    monkeypatch.setattr(cells, "BLOCK", block)
    found, cell_of_point = exact_neighbors(points, points, 5, exclude_self=True), nearest_center(points, points[:7])
    assert torch.equal(found[0], expected[0][0])
    torch.testing.assert_close(found[1], expected[0][1])
    assert torch.equal(cell_of_point, expected[1])


def test_k_means_finds_separated_clusters() -> None:
    points = torch.tensor([[0.0, 0.0], [50.0, 0.0]]).repeat(60, 1) + normal(120, 2)  # all are sampled
    found = k_means(points, 2)
    expected = torch.stack([points[0::2].mean(dim=0), points[1::2].mean(dim=0)])
    torch.testing.assert_close(found[found[:, 0].argsort()], expected)
    assert torch.equal(found, k_means(points, 2))


def test_k_means_keeps_the_centre_of_an_empty_cluster() -> None:
    assert torch.equal(k_means(torch.full((10, 2), 3.0), 4), torch.full((4, 2), 3.0))


@pytest.mark.parametrize("n", [1, 2, 100, 5000])
def test_partition_numbers_cells_without_gaps(n: int) -> None:
    cell = partition(normal(n))
    sizes = torch.bincount(cell)
    assert len(cell) == n
    assert (sizes > 0).all()
    assert sizes.max() <= 2 * math.isqrt(n)


def test_equal_points_share_a_cell() -> None:
    points = normal(40).repeat(30, 1)
    cell = partition(points).reshape(30, 40)
    assert (cell == cell[0]).all()


def test_duplicates_are_one_cell() -> None:
    assert (partition(torch.ones(500, 3)) == 0).all()


def test_index_contains_every_point_once_and_the_centres_of_cells() -> None:
    points = normal(3000)
    ivf = IVFIndex(points, 5)
    assert torch.equal(ivf.order.sort().values, torch.arange(3000))
    assert torch.equal(ivf.sorted, points[ivf.order])
    assert ivf.starts == [0, *ivf.ends[:-1]]
    assert ivf.ends[-1] == 3000
    for start, end, center in list(zip(ivf.starts, ivf.ends, ivf.centers, strict=True))[:10]:
        torch.testing.assert_close(ivf.sorted[start:end].mean(dim=0), center, rtol=1e-4, atol=1e-5)


def test_probe_order_is_by_distance_itself_first() -> None:
    ivf = IVFIndex(normal(3000), 5)
    distance = torch.cdist(ivf.centers, ivf.centers)
    assert torch.equal(ivf.probe_order[:, 0], torch.arange(len(ivf.centers)))
    ordered = distance.gather(1, ivf.probe_order)
    assert (ordered.diff(dim=1) >= -1e-3).all()


def test_searching_all_cells_is_exact() -> None:
    points = normal(1200)
    ivf = IVFIndex(points, 5, n_probes=1200)
    index, distance = ivf.query_self()
    expected = exact_neighbors(points, points, 5, exclude_self=True)
    torch.testing.assert_close(distance, expected[1])
    assert torch.equal(index, expected[0])


def test_more_cells_are_searched_if_they_hold_fewer_than_k_points() -> None:
    ivf = IVFIndex(normal(400), 100, n_probes=1)
    index, distance = ivf.query_self()
    assert distance.isfinite().all()
    assert all(len(set(row)) == 100 for row in index.tolist())


def test_probe_ranks_are_positions_in_the_probe_order() -> None:
    points = normal(1500)
    ivf = IVFIndex(points, 4)
    queries = torch.arange(0, 1500, 7)
    found, _ = exact_neighbors(points[queries], points, 6)
    expected = [
        [ivf.probe_order[ivf.cell[q]].tolist().index(int(ivf.cell[f])) for f in row]
        for q, row in zip(queries.tolist(), found, strict=True)
    ]
    assert ivf.probe_ranks(queries, found).tolist() == expected
    ivf.probe_order = ivf.probe_order[:, :2]
    assert ivf.probe_ranks(queries, found).tolist() == [[min(rank, 2) for rank in row] for row in expected]


def test_seed_changes_the_cells() -> None:
    points = normal(2000)
    one, same, other = (partition(points, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one[:200, None] == one[None, :200], other[:200, None] == other[None, :200])
