"""Conjugate gradients against dense solvers."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.label.baselines import conjugate_gradients


def solve(
    a: NDArray[np.float64], b: NDArray[np.float64], tol: float = 1e-12, max_iter: int = 500
) -> tuple[Tensor, int, bool]:
    matrix = torch.from_numpy(a)
    diagonal = matrix.diagonal()[:, None]
    return conjugate_gradients(lambda f: matrix @ f, torch.from_numpy(b), diagonal, tol=tol, max_iter=max_iter)


def positive_definite(n: int, spread: float = 1.0) -> NDArray[np.float64]:
    root = np.random.default_rng(n).normal(size=(n, n))
    scale = np.logspace(0, spread, n)
    return (root @ root.T + n * np.eye(n)) * np.outer(scale, scale)


def laplacian(n: int, components: int = 1) -> NDArray[np.float64]:
    w = np.random.default_rng(n).random((n, n))
    w = (w + w.T) * (np.arange(n)[:, None] % components == np.arange(n) % components)
    np.fill_diagonal(w, 0)
    return np.diag(w.sum(axis=1)) - w


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_every_column_equals_the_dense_solution(n: int, spread: float) -> None:
    a = positive_definite(n, spread)
    b = np.random.default_rng(0).normal(size=(n, 4)) * [1, 1e-6, 1e6, 1]
    x, steps, converged = solve(a, b)
    assert converged
    assert 0 < steps <= 3 * n
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-30)


@pytest.mark.parametrize("components", [1, 3])
def test_a_singular_system_in_the_range_is_solved_up_to_its_null_space(components: int) -> None:
    a = laplacian(21, components)
    b = a @ np.random.default_rng(0).normal(size=(21, 2))
    x, _, converged = solve(a, b, tol=1e-10)
    assert converged
    np.testing.assert_allclose(a @ x.numpy(), b, atol=1e-8)
    component = np.arange(21) % components
    centred = x.numpy() - np.stack([x.numpy()[component == c].mean(axis=0) for c in range(components)])[component]
    np.testing.assert_allclose(centred, np.linalg.pinv(a) @ b, atol=1e-8)


def test_a_zero_column_stays_zero() -> None:
    a = positive_definite(20)
    b = np.random.default_rng(0).normal(size=(20, 3))
    b[:, 1] = 0
    x, _, converged = solve(a, b)
    assert converged
    assert (x[:, 1] == 0).all()
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-14)


def test_a_converged_column_does_not_change() -> None:
    a = np.diag(np.arange(1.0, 41.0)) + 0.5
    b = np.stack([a[:, 0], np.random.default_rng(0).normal(size=40)], axis=1)
    x, _, converged = solve(a, b, tol=1e-13)
    assert converged
    assert x.isfinite().all()
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), atol=1e-10)


def test_a_zero_right_hand_side_takes_no_step() -> None:
    x, steps, converged = solve(positive_definite(5), np.zeros((5, 2)))
    assert (x == 0).all()
    assert (steps, converged) == (0, True)


def test_tolerance_0_gives_finite_numbers() -> None:
    # Because of rounding, the residual may never be 0.
    a = positive_definite(10)
    b = np.random.default_rng(0).normal(size=(10, 2))
    x, steps, _ = solve(a, b, tol=0, max_iter=300)
    assert steps <= 300
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8)


def test_too_few_steps_are_not_converged() -> None:
    _, steps, converged = solve(positive_definite(30), np.ones((30, 1)), max_iter=2)
    assert (steps, converged) == (2, False)


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_the_tolerance_bounds_the_residual_of_each_column(tol: float) -> None:
    a = positive_definite(30)
    b = np.random.default_rng(0).normal(size=(30, 3)) * [1, 1e-4, 1e4]
    x, _, converged = solve(a, b, tol=tol)
    assert converged
    assert (np.linalg.norm(a @ x.numpy() - b, axis=0) <= 1.01 * tol * np.linalg.norm(b, axis=0)).all()


def test_columns_converge_independently() -> None:
    ring = np.eye(30, k=1) + np.eye(30, k=29)
    a = 3 * np.eye(30) + ring + ring.T
    # The first column converges in one step.
    b = np.stack([1e6 * np.ones(30), np.random.default_rng(0).normal(size=30)], axis=1)
    x, _, converged = solve(a, b, tol=1e-6)
    assert converged
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-3)
