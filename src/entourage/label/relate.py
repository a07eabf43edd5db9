"""Graphs and features from outside, checked and made fit for the game."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_array

from entourage.game.graph import Negatives, needed_lift


def as_tensor(X: Any) -> torch.Tensor:
    """The array as a tensor.

    Copied only if it must not be written, as those that pandas hands out, or runs backwards, which torch cannot.
    """
    return torch.from_numpy(X if X.flags.writeable and min(X.strides, default=0) >= 0 else X.copy())


def checked_graph(w: Any, negatives: Negatives) -> tuple[sparse.csr_matrix, float]:
    """A similarity matrix from outside, fit for the game: square, finite, symmetric, non-negative, without loops.

    Returns:
        The graph, and what was added to its weights: see `needed_lift`.

    Raises:
        ValueError: where it is not.
    """
    w = check_array(w, accept_sparse="csr", dtype=[np.float32, np.float64])
    if w.shape[0] != w.shape[1]:
        raise ValueError(f"the precomputed graph has shape {w.shape}; expected a square matrix")
    dense = not sparse.issparse(w)
    graph = sparse.csr_matrix(w, copy=True)
    graph.setdiag(0)
    graph.eliminate_zeros()
    graph.sort_indices()
    gap = abs(graph - graph.T)
    if gap.nnz and gap.max() > 1e-5 * abs(graph).max():
        worst = gap.tocoo()
        i, j = (int(v[worst.data.argmax()]) for v in (worst.row, worst.col))
        raise ValueError(
            f"the precomputed graph is not symmetric: w[{i}, {j}] = {graph[i, j]:.4g} but w[{j}, {i}] = "
            f"{graph[j, i]:.4g}; expected equal weights (see entourage.game.symmetrized)"
        )
    lift = needed_lift(torch.from_numpy(graph.data), negatives) if graph.nnz else 0.0
    if lift and dense:  # every pair has a similarity, be it 0
        graph = sparse.csr_matrix(graph.toarray() + lift * (1 - np.eye(len(w), dtype=w.dtype)))
    else:
        graph.data = graph.data + lift
    graph.data = graph.data.clip(min=0)
    graph.eliminate_zeros()
    return graph, lift


def lifted(w: Any, lift: float, negatives: Negatives) -> Any:
    """Similarities of new points to those of a graph, shape (q, n), lifted as the graph was, dense or CSR as they came.

    Raises:
        ValueError: if there are negative ones and they are to be an error.
    """
    stored = w if isinstance(w, np.ndarray) else w.data
    if negatives == "error":
        needed_lift(as_tensor(stored), negatives, "X")
    raised = (stored + lift).clip(min=0)
    return raised if isinstance(w, np.ndarray) else sparse.csr_matrix((raised, w.indices, w.indptr), w.shape)
