"""Conjugate gradients against dense solvers."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.label.baselines import conjugate_gradients


def solved(
    a: NDArray[np.float64], b: NDArray[np.float64], tol: float = 1e-12, max_iter: int = 500
) -> tuple[Tensor, int, bool]:
    matrix = torch.from_numpy(a)
    diagonal = matrix.diagonal()[:, None]
    return conjugate_gradients(lambda f: matrix @ f, torch.from_numpy(b), diagonal, tol=tol, max_iter=max_iter)


def positive_definite(n: int, spread: float = 1.0) -> NDArray[np.float64]:
    root = np.random.default_rng(n).normal(size=(n, n))
    scale = np.logspace(0, spread, n)
    return (root @ root.T + n * np.eye(n)) * np.outer(scale, scale)


def laplacian(n: int, parts: int = 1) -> NDArray[np.float64]:
    w = np.random.default_rng(n).random((n, n))
    w = (w + w.T) * (np.arange(n)[:, None] % parts == np.arange(n) % parts)
    np.fill_diagonal(w, 0)
    return np.diag(w.sum(axis=1)) - w


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_every_column_is_the_dense_solution(n: int, spread: float) -> None:
    a = positive_definite(n, spread)
    b = np.random.default_rng(0).normal(size=(n, 4)) * [1, 1e-6, 1e6, 1]
    x, steps, done = solved(a, b)
    assert done
    assert 0 < steps <= 3 * n
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-30)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_singular_system_in_the_range_is_solved_up_to_its_null_space(parts: int) -> None:
    a = laplacian(21, parts)
    b = a @ np.random.default_rng(0).normal(size=(21, 2))
    x, _, done = solved(a, b, tol=1e-10)
    assert done
    np.testing.assert_allclose(a @ x.numpy(), b, atol=1e-8)
    part = np.arange(21) % parts
    centred = x.numpy() - np.stack([x.numpy()[part == p].mean(axis=0) for p in range(parts)])[part]
    np.testing.assert_allclose(centred, np.linalg.pinv(a) @ b, atol=1e-8)


def test_a_zero_column_stays_zero_beside_others() -> None:
    a = positive_definite(20)
    b = np.random.default_rng(0).normal(size=(20, 3))
    b[:, 1] = 0
    x, _, done = solved(a, b)
    assert done
    assert (x[:, 1] == 0).all()
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-14)


def test_a_column_that_is_done_early_rests() -> None:
    a = np.diag(np.arange(1.0, 41.0)) + 0.5
    b = np.stack([a[:, 0], np.random.default_rng(0).normal(size=40)], axis=1)
    x, _, done = solved(a, b, tol=1e-13)
    assert done
    assert x.isfinite().all()
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), atol=1e-10)


def test_nothing_to_solve_takes_no_step() -> None:
    x, steps, done = solved(positive_definite(5), np.zeros((5, 2)))
    assert (x == 0).all()
    assert (steps, done) == (0, True)


def test_steps_without_end_still_give_numbers() -> None:
    # tol = 0 can never be met once rounding has the last word.
    a = positive_definite(10)
    b = np.random.default_rng(0).normal(size=(10, 2))
    x, steps, _ = solved(a, b, tol=0, max_iter=300)
    assert steps <= 300
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-8)


def test_too_few_steps_are_confessed() -> None:
    _, steps, done = solved(positive_definite(30), np.ones((30, 1)), max_iter=2)
    assert (steps, done) == (2, False)


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_the_tolerance_bounds_the_residual_of_each_column(tol: float) -> None:
    a = positive_definite(30)
    b = np.random.default_rng(0).normal(size=(30, 3)) * [1, 1e-4, 1e4]
    x, _, done = solved(a, b, tol=tol)
    assert done
    assert (np.linalg.norm(a @ x.numpy() - b, axis=0) <= 1.01 * tol * np.linalg.norm(b, axis=0)).all()


def test_a_large_column_does_not_hide_a_small_one() -> None:
    ring = np.eye(30, k=1) + np.eye(30, k=29)
    a = 3 * np.eye(30) + ring + ring.T
    b = np.stack([1e6 * np.ones(30), np.random.default_rng(0).normal(size=30)], axis=1)  # the first is done in one step
    x, _, done = solved(a, b, tol=1e-6)
    assert done
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-3)
