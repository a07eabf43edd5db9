from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.serve.conftest import groups

from entourage.label import GraphTransduction
from entourage.serve.labelling.layout import layout_steps, principal_components, to_unit_square


def test_neighbours_are_close_and_the_result_is_stored(tmp_path: Path) -> None:
    X = groups(90)
    y = np.where(np.arange(90) < 3, np.arange(90), -1)
    w = GraphTransduction().fit(X, y).graph_
    steps = list(layout_steps(w, X, tmp_path / "map.npy"))
    assert len(steps) > 2
    last = steps[-1]
    assert last.shape == (90, 2)
    assert np.isfinite(last).all()
    assert np.abs(last).max() <= 1
    coo = w.tocoo()
    near = np.linalg.norm(last[coo.row] - last[coo.col], axis=1).mean()
    far = np.linalg.norm(last[:-1] - last[1:], axis=1).mean()  # of different groups
    assert near < 0.5 * far
    again = list(layout_steps(w, X, tmp_path / "map.npy"))
    assert len(again) == 1
    np.testing.assert_array_equal(again[0], last)
    other = w.copy()
    other.data = other.data * 2
    assert len(list(layout_steps(other, X, tmp_path / "map.npy"))) > 2  # of another graph


def test_principal_components_are_the_directions_of_largest_variance() -> None:
    generator = np.random.default_rng(0)
    X = (generator.normal(size=(500, 5)) * [0.1, 5, 0.1, 2, 0.1]).astype(np.float32)
    found = principal_components(X)
    assert abs(np.corrcoef(found[:, 0], X[:, 1])[0, 1]) > 0.999
    assert abs(np.corrcoef(found[:, 1], X[:, 3])[0, 1]) > 0.99


def test_one_dimension_and_equal_points_are_valid() -> None:
    assert np.isfinite(principal_components(np.arange(5, dtype=np.float32)[:, None])).all()
    assert (to_unit_square(torch.ones(4, 2)) == 0).all()
