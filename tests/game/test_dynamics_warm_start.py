from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from entourage.game.dynamics import WALK_WEIGHT, diffuse, diffuse_twice, warm_start
from entourage.game.graph import to_torch


def graph(n: int = 7) -> Tensor:
    w = torch.rand(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = (w + w.T).fill_diagonal_(0)
    w[-1, :] = w[:, -1] = 0  # the last node is isolated
    return w


@pytest.mark.parametrize("as_csr", [False, True])
def test_diffuse_equals_a_sum_of_matrix_powers(as_csr: bool) -> None:
    w = graph()
    sources = torch.zeros(7, 2, dtype=torch.float64)
    sources[0, 0] = sources[3, 1] = sources[6, 1] = 1
    actual = diffuse(w.to_sparse_csr() if as_csr else w, sources, 3)
    degree = w.sum(dim=1).numpy()
    step = np.divide(w.numpy(), degree[:, None], where=degree[:, None] > 0, out=np.zeros((7, 7)))
    expected = sum(np.linalg.matrix_power(step, t) @ sources.numpy() for t in range(4))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)
    assert actual[6].tolist() == [0, 1]  # an isolated node keeps its values
    assert sources.sum() == 3  # not modified


def start(prior: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the distributions of seven nodes, the first and the fourth labelled, and the mask of the labelled ones."""
    x = torch.full((7, 2), 0.5, dtype=torch.float64) if prior is None else prior.clone()
    x[0], x[3] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    return x, torch.tensor([True, False, False, True, False, False, False])


def test_warm_start_multiplies_distributions_by_diffused_labels() -> None:
    w = graph()
    prior = torch.rand(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, labelled = start(prior / prior.sum(dim=1, keepdim=True))
    actual = warm_start(x, w, labelled, 4)
    torch.testing.assert_close(actual.sum(dim=1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(actual[labelled], x[labelled])
    torch.testing.assert_close(actual[6], x[6])  # not reached by a walk
    diffused = diffuse(w, x * labelled[:, None], 4)
    weighted = diffused / diffused.sum(dim=0).sqrt()
    expected = x[1] * (1 + WALK_WEIGHT * weighted[1] / weighted.mean())
    torch.testing.assert_close(actual[1], expected / expected.sum())
    assert warm_start(x, w, labelled, 0) is x
    assert warm_start(x, w, torch.zeros(7, dtype=torch.bool), 4) is x


def test_four_times_as_many_labels_weigh_twice_as_much() -> None:
    n = 60
    w = torch.ones(n, n, dtype=torch.float64).fill_diagonal_(0)  # a complete graph
    x = torch.full((n, 2), 0.5, dtype=torch.float64)
    labelled = torch.zeros(n, dtype=torch.bool)
    labelled[:5] = True
    x[:4], x[4] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    odds = warm_start(x, w, labelled, 200)[10]
    weight = WALK_WEIGHT / 2.5**0.5  # labels a class
    expected = (1 + weight * 4 / 3) / (1 + weight * 2 / 3)  # on average 1
    assert float(odds[0] / odds[1]) == pytest.approx(expected, rel=1e-3)


def test_a_class_without_labels_gets_no_weight() -> None:
    x = torch.full((7, 3), 1 / 3, dtype=torch.float64)
    labelled = torch.tensor([True, True, *[False] * 5])
    x[0], x[1] = torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0])
    actual = warm_start(x, to_torch(sparse.csr_matrix(graph().numpy())), labelled, 5)
    assert actual.isfinite().all()
    assert (actual[2:6, 2] < actual[2:6, :2].amin(dim=1)).all()


def test_walks_of_twice_the_length_continue_the_short_ones() -> None:
    w, x = graph(), torch.rand((7, 3), generator=torch.Generator().manual_seed(0), dtype=graph().dtype)
    short, long = diffuse_twice(w, x, 4)
    torch.testing.assert_close(short, diffuse(w, x, 4))
    torch.testing.assert_close(long, diffuse(w, x, 8))
