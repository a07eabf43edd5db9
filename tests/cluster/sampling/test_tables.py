from __future__ import annotations

import numpy as np
import pytest

from entourage.cluster.sampling import tables as module
from entourage.cluster.sampling.structures import STRUCTURES, draw_sizes
from entourage.cluster.sampling.tables import NOISE, TableOptions, add_noise, draw_k, simulate_table


@pytest.mark.parametrize("structure", STRUCTURES)
def test_tables_of_every_structure_are_finite_with_known_clusters(structure: str) -> None:
    for seed in range(12):
        table = simulate_table(np.random.default_rng(seed), TableOptions(n_max=200, structures=(structure,)))
        assert np.isfinite(table.X).all()
        assert table.X.ndim == 2
        assert len(table.X) == len(table.labels) >= 20
        found = np.unique(table.labels[table.labels != NOISE])
        assert found.tolist() == list(range(len(found)))
        assert 1 <= len(found) <= STRUCTURES[structure].k_max
        assert table.structure == structure


def test_the_same_seed_gives_the_same_table() -> None:
    first, second = (simulate_table(np.random.default_rng([1, 2])) for _ in range(2))
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.labels, second.labels)


def test_tables_vary_in_length_width_and_number_of_clusters() -> None:
    tables = [simulate_table(np.random.default_rng(seed), TableOptions(n_max=400)) for seed in range(80)]
    assert len({table.structure for table in tables}) >= 5
    assert {table.X.shape[1] for table in tables} >= {1, 2, 3}
    assert max(table.X.shape[1] for table in tables) > 20
    counts = [len(set(table.labels.tolist()) - {NOISE}) for table in tables]
    assert 1 in counts
    assert max(counts) > 8


@pytest.mark.parametrize("k", [1, 3, 10])
def test_sizes_add_up_and_are_not_too_small(k: int) -> None:
    for seed in range(20):
        sizes = draw_sizes(np.random.default_rng(seed), 60, k)
        assert sizes.sum() == 60
        assert len(sizes) == k
        assert sizes.min() >= 4


def test_numbers_of_clusters_are_within_their_limits() -> None:
    drawn = [draw_k(np.random.default_rng(seed), 1, 9) for seed in range(300)]
    assert set(drawn) == set(range(1, 10))


def test_noise_has_a_label_of_its_own() -> None:
    X, labels = add_noise(np.random.default_rng(0), np.zeros((50, 2)), np.zeros(50, dtype=np.int64))
    assert 1 <= (labels == NOISE).sum() <= 9
    assert len(X) == len(labels)


@pytest.mark.parametrize("alteration", [function for _, function in module.COLUMN_ALTERATIONS])
def test_alterations_keep_the_items(alteration: object) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    altered = alteration(np.random.default_rng(1), X)  # type: ignore[operator]
    assert len(altered) == 30
    assert altered.shape[1] <= module.MAX_COLUMNS
    assert np.isfinite(altered).all()
    assert not np.array_equal(altered, X)
