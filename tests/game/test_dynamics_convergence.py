"""Number of iterations, convergence and trace of the replicator dynamics."""

from itertools import pairwise

import pytest
import torch
from tests.game.games import as_csr, random_game

from entourage.game import consistency, replicator


def test_tolerance_does_not_depend_on_the_number_of_nodes() -> None:
    w, x, _ = random_game(11, 12, 3, 0.4)
    fixed = torch.arange(12) < 3
    once = replicator(w, x, fixed=fixed)
    many = replicator(as_csr(torch.block_diag(*[w] * 50)), x.repeat(50, 1), fixed=fixed.repeat(50))
    assert 1 < once.n_iter < 1000
    assert many.n_iter == once.n_iter
    torch.testing.assert_close(many.x, once.x.repeat(50, 1))


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_stops_at_the_first_change_below_the_relative_tolerance(tol: float) -> None:
    w, x, _ = random_game(12, 10, 3)
    result = replicator(w, x, tol=tol)
    iterates = [replicator(w, x, tol=None, max_iter=t).x for t in range(result.n_iter + 1)]
    changes = [float((after - before).abs().sum()) for before, after in pairwise(iterates)]
    converged = [change <= tol * sum(changes[: t + 1]) for t, change in enumerate(changes)]
    assert converged == [False] * (result.n_iter - 1) + [True]
    assert result.converged
    assert torch.equal(result.x, iterates[-1])


@pytest.mark.parametrize("max_iter", [0, 1, 7])
def test_without_tolerance_exactly_max_iter_iterations_run(max_iter: int) -> None:
    w, x = torch.zeros(3, 3), torch.full((3, 2), 0.5)  # a fixed point
    result = replicator(w, x, max_iter=max_iter, tol=None)
    assert result.n_iter == max_iter
    assert not result.converged


def test_max_iter_stops_before_convergence() -> None:
    w, x, _ = random_game(13, 10, 3)
    result = replicator(w, x, max_iter=2, tol=1e-9)
    assert (result.n_iter, result.converged) == (2, False)


@pytest.mark.parametrize("grad", [False, True], ids=["buffered", "differentiable"])
def test_trace_is_the_consistency_of_every_iterate(grad: bool) -> None:
    w, x, s = random_game(14, 9, 4, with_similarity=True)
    result = replicator(w, x.clone().requires_grad_(grad), class_similarity=s, max_iter=6, tol=None, trace=True)
    iterates = [replicator(w, x, class_similarity=s, max_iter=t, tol=None).x for t in range(7)]
    assert result.consistency.dtype == torch.float64
    assert result.consistency.tolist() == pytest.approx(
        [consistency(w, iterate, s).item() for iterate in iterates], rel=1e-12
    )


def test_trace_is_empty_by_default() -> None:
    assert replicator(torch.ones(2, 2), torch.full((2, 2), 0.5)).consistency.shape == (0,)
