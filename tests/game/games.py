"""Random games for the tests."""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from entourage.game.graph import to_torch


def random_game(
    seed: int, n: int, m: int, density: float = 0.7, *, with_similarity: bool = False
) -> tuple[Tensor, ...]:
    """Return W and S, symmetric and non-negative with some exact zeros, and X on the simplex; all float64."""
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < density)
    s = rng.random((m, m)) * (rng.random((m, m)) < 0.8) if with_similarity else np.eye(m)
    return (
        torch.from_numpy(np.maximum(w, w.T)),
        torch.from_numpy(rng.dirichlet(np.full(m, 0.5), size=n)),
        torch.from_numpy(s + s.T),
    )


def as_csr(w: Tensor) -> Tensor:
    return to_torch(sparse.csr_matrix(w.numpy()))
