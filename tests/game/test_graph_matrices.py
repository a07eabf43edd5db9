"""Operations on the matrix of a graph: symmetrising, normalising, shifting, sparsifying, conversion to torch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from entourage.game import NeighborGraph, normalize_degrees, symmetrize
from entourage.game.graph import default_n_neighbors, required_shift, sparsify, to_torch

Floats = NDArray[np.floating]
ONE_WAY = sparse.csr_matrix(np.array([[0, 0.8, 0.5], [0.4, 0, 0], [0, 0.2, 0]], dtype=np.float32))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("max", [[0, 0.8, 0.5], [0.8, 0, 0.2], [0.5, 0.2, 0]]),
        ("mean", [[0, 0.6, 0.25], [0.6, 0, 0.1], [0.25, 0.1, 0]]),
        ("mutual", [[0, 0.4, 0], [0.4, 0, 0], [0, 0, 0]]),
    ],
)
def test_symmetrize(mode: Any, expected: list[list[float]]) -> None:
    w = symmetrize(ONE_WAY, mode)
    assert w.dtype == np.float32
    assert w.nnz == np.count_nonzero(expected)
    np.testing.assert_allclose(w.toarray(), expected, rtol=1e-6)


def test_normalize_degrees() -> None:
    w = np.array([[0, 1, 3, 0], [1, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32)
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 1 / math.sqrt(4 * 1)
    expected[0, 2] = expected[2, 0] = 3 / math.sqrt(4 * 3)
    np.testing.assert_allclose(normalize_degrees(sparse.csr_matrix(w)).toarray(), expected, rtol=1e-6)


def test_negative_similarities_raise_or_are_clamped_or_shifted() -> None:
    values = torch.tensor([0.5, -0.25, 0.0])
    assert required_shift(values, "clamp") == 0
    assert required_shift(values, "shift") == 0.25
    with pytest.raises(ValueError, match="mine has 1 negative similarities; expected negatives='clamp' or"):
        required_shift(values, "error", "mine")


@pytest.mark.parametrize("mode", ["error", "clamp", "shift"])
@pytest.mark.parametrize("values", [[0.5, 0.25], []])
def test_non_negative_similarities_need_no_shift(mode: Any, values: list[float]) -> None:
    assert required_shift(torch.tensor(values), mode) == 0


def dense_sparsify(w: Floats, k: int) -> Floats:
    w = w.copy()
    np.fill_diagonal(w, 0)
    threshold = np.sort(w, axis=1)[:, -k][:, None]
    return np.where(w >= threshold, w, 0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array], ids=["dense", "matrix", "array"])
@pytest.mark.parametrize("n", [40, 1100, 2048])
@pytest.mark.parametrize("k", ["auto", 3])
def test_sparsify_keeps_the_largest_of_each_row(kind: Any, n: int, k: Any) -> None:
    w = np.random.default_rng(0).random((n, n), dtype=np.float32)
    w_in = kind(w)
    sparsified = sparsify(w_in, k)
    expected = dense_sparsify(w, default_n_neighbors(n) if k == "auto" else k)
    assert sparsified.has_sorted_indices
    assert sparsified.nnz == np.count_nonzero(expected)
    assert (sparsified != sparse.csr_matrix(expected)).nnz == 0
    assert (np.asarray(w_in.todense() if sparse.issparse(w_in) else w_in) == w).all()  # not modified


@pytest.mark.parametrize("k", [19, 20, 500])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_sparsify_with_too_many_neighbours_only_drops_the_diagonal(n: int, k: int) -> None:
    w = np.random.default_rng(0).random((n, n)) + 0.1
    np.testing.assert_array_equal(sparsify(w, k).toarray(), w - np.diag(w.diagonal()))


def test_sparsify_adds_no_edges_to_rows_with_fewer() -> None:
    w = sparse.csr_matrix(([0.5, 0.5, 0.9], ([0, 1, 2], [1, 0, 2])), shape=(30, 30))
    assert sparsify(w, 5).nnz == 2


@pytest.mark.parametrize("k", [1, 4, 29])
def test_sparsify_gives_equal_results_for_sparse_and_dense(k: int) -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(30, 30)) * (rng.random((30, 30)) < np.linspace(0, 1, 30)[:, None])  # empty rows to full ones
    rows, columns = w.nonzero()
    halves = np.tile(w[rows, columns] / 2, 2)
    order = rng.permutation(len(halves))
    with_duplicates = sparse.coo_matrix((halves[order], (np.tile(rows, 2)[order], np.tile(columns, 2)[order])), w.shape)
    expected = sparsify(w, k)
    for w_in in (sparse.csr_matrix(w), with_duplicates):
        sparsified = sparsify(w_in, k)
        assert sparsified.has_sorted_indices
        assert sparsified.nnz == expected.nnz
        np.testing.assert_allclose(sparsified.toarray(), expected.toarray())


def test_sparsify_makes_no_dense_copy_of_a_sparse_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    w = sparse.random_array((200, 200), density=0.1, format="csr", rng=np.random.default_rng(0))
    for kind in (sparse.csr_matrix, sparse.csr_array):
        monkeypatch.setattr(kind, "toarray", lambda *_: pytest.fail("a dense copy was made"))
    assert sparsify(w, 5).nnz == np.minimum(np.diff(w.indptr) - (w.diagonal() != 0), 5).sum()


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_to_torch_preserves_the_matrix(index: type) -> None:
    w = NeighborGraph(torch.from_numpy(np.random.default_rng(0).normal(size=(60, 4)))).w
    w.indices, w.indptr = w.indices.astype(index), w.indptr.astype(index)
    tensor = to_torch(w)
    assert tensor.layout == torch.sparse_csr
    assert tensor.col_indices().dtype == torch.int32
    np.testing.assert_array_equal(tensor.to_dense().numpy(), w.toarray())
