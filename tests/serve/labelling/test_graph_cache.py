from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.serve.conftest import groups

from entourage.label import GraphTransduction
from entourage.serve.labelling import graph_cache
from entourage.serve.labelling.graph_cache import load_or_build


def test_the_graph_is_that_of_graph_transduction(tmp_path: Path) -> None:
    X = groups()
    y = np.where(np.arange(60) < 3, np.arange(60), -1)
    expected = GraphTransduction(n_neighbors=4).fit(X, y).graph_
    found = load_or_build(tmp_path / "graph.npz", X, {"n_neighbors": 4, "walk_steps": 3})
    assert abs(found - expected).max() == 0


def test_a_stored_graph_is_used_for_the_same_features_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, X = tmp_path / "graph.npz", groups()
    first = load_or_build(path, X, {})
    changed = load_or_build(path, X + 1, {})
    assert abs(changed - first).max() < 1e-3  # shifts leave distances unchanged
    monkeypatch.setattr(graph_cache, "NeighborGraph", None)  # a call would fail
    assert abs(load_or_build(path, X + 1, {}) - changed).max() == 0
    with pytest.raises(TypeError):
        load_or_build(path, X, {})


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    path.write_bytes(b"PK\x03\x04 damaged")
    found = load_or_build(path, groups(), {})
    assert abs(load_or_build(path, groups(), {}) - found).max() == 0
