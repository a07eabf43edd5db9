from __future__ import annotations

import numpy as np
import pytest

from entourage.cluster.tables.prepare import PreparedTable, Scaling


def table(n: int = 200, d: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def distances(X: np.ndarray) -> np.ndarray:
    return PreparedTable(Scaling.fit(X).transform(X)).distances


def test_units_and_origin_of_columns_have_no_effect() -> None:
    X = table()
    other = X * [1.0, 1e6, 1e-6, 20.0] + [0.0, 3e6, 5.0, -1e3]
    # Columns of less than half the lower median of the spreads are not enlarged to the full: scale all up.
    np.testing.assert_allclose(distances(10 * X), distances(X), rtol=1e-6)
    np.testing.assert_allclose(distances(X * [1.0, 1.0, 1.0, 10.0]), distances(X), rtol=0.2, atol=0.05)
    assert np.isfinite(distances(other)).all()


def test_one_extreme_value_hardly_changes_the_distances_of_the_others() -> None:
    X = table()
    X[0, 0] = 1000
    ratio = distances(X)[1:, 1:] / np.maximum(distances(table())[1:, 1:], 1e-9)
    ratio = ratio[~np.eye(len(ratio), dtype=bool)]
    assert np.quantile(ratio, 0.99) / np.quantile(ratio, 0.01) < 1.2


def test_constant_columns_and_huge_values_are_accepted() -> None:
    X = np.column_stack([table(), np.full(200, 7.0), np.zeros(200)])
    np.testing.assert_allclose(distances(X), distances(table()), atol=1e-9)
    assert np.isfinite(distances(1e299 * table())).all()
    assert np.isfinite(distances(1e-300 * table())).all()


def test_a_table_of_equal_rows_has_distances_of_zero() -> None:
    assert distances(np.ones((5, 3))).max() == 0


def test_distances_of_the_components_are_those_of_the_columns() -> None:
    X = table()
    spread = X.std(0)
    scaled = X / Scaling.fit(X).scale
    z = Scaling.fit(X).transform(X)
    inside = (np.abs(X) < 2 * spread).all(1)  # other values may be clipped
    full = np.linalg.norm(scaled[inside][:, None] - scaled[inside], axis=2)
    np.testing.assert_allclose(np.linalg.norm(z[inside][:, None] - z[inside], axis=2), full, atol=1e-9)


def test_neighbours_are_sorted_and_exclude_the_item() -> None:
    prepared = PreparedTable(table(50))
    assert prepared.neighbors.shape == (50, 40)
    assert (prepared.neighbors != np.arange(50)[:, None]).all()
    assert (np.diff(prepared.neighbor_distances, axis=1) >= 0).all()
    expected = np.sort(prepared.distances, axis=1)[:, 1:41]
    np.testing.assert_allclose(prepared.neighbor_distances, expected)


def test_density_is_high_where_neighbours_are_near_or_repeated() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=(100, 2)), 10 + 0.1 * rng.normal(size=(100, 2))])
    density = PreparedTable(z).log_density
    assert density[100:].mean() - density[:100].mean() == pytest.approx(np.log(10), abs=0.4)
    weight = np.where(np.arange(200) < 100, 9.0, 1.0)
    repeated = PreparedTable(z, weight).log_density - density
    assert repeated[:100].mean() == pytest.approx(np.log(9) / 2, abs=0.1)
    assert repeated[100:] == pytest.approx(0)
