from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from entourage.label.base import as_tensor, check_graph, shift_similarities

SQUARE = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])


def test_loops_are_removed_from_a_copy() -> None:
    for kind in (np.asarray, sparse.csr_matrix):
        w = kind(SQUARE + 3 * np.eye(3))
        graph, _ = check_graph(w, "error")
        np.testing.assert_array_equal(graph.toarray(), SQUARE)
        np.testing.assert_array_equal(np.asarray(w.todense() if kind is sparse.csr_matrix else w).diagonal(), 3)


@pytest.mark.parametrize(("negatives", "expected"), [("clamp", [0.5, 0, 0.2]), ("shift", [0.8, 0, 0.5])])
def test_negative_weights_are_clamped_or_shifted(negatives: Any, expected: list[float]) -> None:
    w = np.array([[0, 0.5, -0.3], [0.5, 0, 0.2], [-0.3, 0.2, 0]])
    graph = check_graph(w, negatives)[0].toarray()
    np.testing.assert_allclose([graph[0, 1], graph[0, 2], graph[1, 2]], expected)
    np.testing.assert_array_equal(graph, graph.T)


def test_only_stored_weights_of_a_sparse_graph_are_shifted() -> None:
    w = sparse.csr_matrix(np.array([[0, -0.5, 0.5], [-0.5, 0, 0], [0.5, 0, 0]]))
    graph, shift = check_graph(w, "shift")
    assert shift == 0.5
    np.testing.assert_array_equal(graph.toarray(), [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_new_similarities_are_shifted_like_the_graph(kind: Any) -> None:
    w = kind(np.array([[0.5, -0.25, -1.0]]))
    shifted = shift_similarities(w, 0.5, "shift")
    assert sparse.issparse(shifted) == sparse.issparse(w)
    np.testing.assert_allclose(shifted @ np.eye(3), [[1.0, 0.25, 0.0]])
    with pytest.raises(ValueError, match=r"X has 2 .*; expected negatives='clamp' or 'shift'"):
        shift_similarities(w, 0.0, "error")


def test_only_read_only_arrays_are_copied() -> None:
    x = np.ones(3)
    assert as_tensor(x).data_ptr() == x.ctypes.data
    x.flags.writeable = False
    assert as_tensor(x).data_ptr() != x.ctypes.data


def test_only_negative_strides_are_copied() -> None:
    x = np.arange(6.0).reshape(3, 2)
    for backwards in (x[::-1], x[:, ::-1], x[::-1, ::-1]):
        np.testing.assert_array_equal(as_tensor(backwards).numpy(), backwards)
    assert as_tensor(x.T).data_ptr() == x.ctypes.data
