"""Replicator dynamics against the equations and theorems of the thesis."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.game.games import as_csr, random_game
from torch import Tensor

from entourage.game import consistency, replicator
from entourage.game.dynamics import payoffs, replicator_step

# F is a sum of n^2 m products; each product and each division is rounded to one part in 2^53.
ROUNDING = 1e-12

games = st.tuples(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.1, 0.4, 1.0]))


@settings(max_examples=60, deadline=None)
@given(games, st.booleans(), st.booleans(), st.booleans())
def test_consistency_never_decreases_and_rows_stay_on_the_simplex(
    game: tuple[int, int, int, float], with_similarity: bool, with_fixed: bool, as_sparse: bool
) -> None:
    seed, n, m, density = game
    w, x, s = random_game(seed, n, m, density, with_similarity=with_similarity)
    fixed = torch.arange(n) % 3 == 0 if with_fixed else None
    result = replicator(
        as_csr(w) if as_sparse else w, x, fixed=fixed, class_similarity=s, max_iter=30, tol=None, trace=True
    )
    level = result.consistency
    assert (level.diff() >= -ROUNDING * (1 + level[:-1])).all()
    assert (result.x >= 0).all()
    torch.testing.assert_close(result.x.sum(dim=1), torch.ones(n, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("grad", [False, True], ids=["buffered", "differentiable"])
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_fixed_nodes_never_change(as_sparse: bool, grad: bool) -> None:
    w, x, _ = (t.float() for t in random_game(1, 20, 4))
    fixed = torch.zeros(20, dtype=torch.bool)
    fixed[[0, 7, 13]] = True
    result = replicator(
        as_csr(w) if as_sparse else w, x.clone().requires_grad_(grad), fixed=fixed, max_iter=50, tol=None
    )
    assert torch.equal(result.x[fixed], x[fixed])
    assert (result.x[~fixed] != x[~fixed]).any(dim=1).all()


def test_arguments_are_not_modified() -> None:
    w, x, _ = random_game(2, 10, 3)
    copies = w.clone(), x.clone()
    replicator(w, x, max_iter=5)
    assert torch.equal(w, copies[0])
    assert torch.equal(x, copies[1])


def test_permuted_nodes_give_a_permuted_result() -> None:
    w, x, s = random_game(3, 15, 4, with_similarity=True)
    fixed = torch.arange(15) < 3
    order = torch.from_numpy(np.random.default_rng(0).permutation(15))
    original = replicator(w, x, fixed=fixed, class_similarity=s)
    permuted = replicator(w[order][:, order], x[order], fixed=fixed[order], class_similarity=s)
    assert permuted.n_iter == original.n_iter
    torch.testing.assert_close(permuted.x, original.x[order])


@pytest.mark.parametrize("with_similarity", [False, True])
@pytest.mark.parametrize("with_fixed", [False, True])
def test_dense_sparse_buffered_and_differentiable_steps_agree(with_similarity: bool, with_fixed: bool) -> None:
    w, x, s = (t.float() for t in random_game(4, 40, 5, 0.2, with_similarity=with_similarity))
    w[6], w[:, 6] = 0, 0  # a node without neighbours takes a separate branch in each
    fixed = torch.arange(40) % 4 == 0 if with_fixed else None
    results = [
        replicator(kind, x.clone().requires_grad_(grad), fixed=fixed, class_similarity=s, max_iter=20, tol=1e-3)
        for kind in (w, as_csr(w))
        for grad in (False, True)
    ]
    assert [result.x.requires_grad for result in results] == [False, True, False, True]
    assert len({result.n_iter for result in results}) == 1
    for result in results[1:]:
        torch.testing.assert_close(result.x.detach(), results[0].x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True], ids=["buffered", "differentiable"])
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_one_iteration_equals_the_equation_of_the_thesis(as_sparse: bool, grad: bool) -> None:
    rng = np.random.default_rng(5)
    w, x, s = rng.random((6, 6)), rng.dirichlet(np.ones(3), size=6), rng.random((3, 3))  # neither W nor S symmetric
    expected = np.zeros_like(x)
    for i in range(6):
        payoff = np.array([sum(w[i, j] * s[h] @ x[j] for j in range(6)) for h in range(3)])  # u_i(e_h, x_-i)
        expected[i] = x[i] * payoff / (x[i] @ payoff)
    w, x, s = (torch.from_numpy(t) for t in (w, x, s))
    result = replicator(as_csr(w) if as_sparse else w, x.requires_grad_(grad), class_similarity=s, max_iter=1)
    np.testing.assert_allclose(result.x.detach().numpy(), expected, rtol=1e-12)


def test_asymmetric_class_similarity_direction() -> None:
    w = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    s = torch.tensor([[0.0, 1.0], [0.0, 0.0]])  # label 0 has a payoff against label 1, and no other pair
    x = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    assert payoffs(w, x, s)[0].tolist() == [1.0, 0.0]


def test_consistency_equals_the_sum_over_all_pairs() -> None:
    w, x, s = (t.numpy() for t in random_game(6, 5, 3, with_similarity=True))
    expected = sum(w[i, j] * x[i] @ s @ x[j] for i in range(5) for j in range(5))
    assert consistency(*map(torch.from_numpy, (w, x, s))).item() == pytest.approx(expected, rel=1e-12)


def test_toy_example_of_chapter_4() -> None:
    # A and B are labelled, C is more similar to A.
    w = torch.tensor([[0.0, 0.1, 0.7], [0.1, 0.0, 0.4], [0.7, 0.4, 0.0]])
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    result = replicator(w, x, tol=1e-6)
    assert result.converged
    torch.testing.assert_close(result.x, torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), rtol=0, atol=1e-4)


def test_class_similarity_can_change_a_decision() -> None:
    # The last node is most similar to a node of label 2, but labels 0 and 1 are similar and outweigh it.
    w = torch.zeros(4, 4)
    w[3, :3] = w[:3, 3] = torch.tensor([0.4, 0.3, 0.5])
    x = torch.cat([torch.eye(3), torch.full((1, 3), 1 / 3)])
    class_similarity = torch.tensor([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    fixed = torch.tensor([True, True, True, False])
    independent = replicator(w, x, fixed=fixed)
    with_similarity = replicator(w, x, fixed=fixed, class_similarity=class_similarity)
    assert independent.x[3].argmax() == 2
    assert with_similarity.x[3].argmax() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, as_sparse: bool) -> None:
    rng = np.random.default_rng(8)
    # With a thousand labels the payoffs are below the smallest float16.
    w, x = torch.from_numpy(rng.random((12, 12)) * 1e-3), torch.from_numpy(rng.normal(size=(12, 1000))).softmax(dim=1)
    w = w.to(dtype)
    result = replicator(w.to_sparse_csr() if as_sparse else w, x.to(dtype), max_iter=20, tol=None, trace=True)
    assert result.x.dtype == torch.float32
    assert result.x.isfinite().all()
    torch.testing.assert_close(result.x.sum(dim=1), torch.ones(12))


@pytest.mark.parametrize("grad", [False, True], ids=["buffered", "differentiable"])
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_nodes_without_payoff_keep_their_distribution(as_sparse: bool, grad: bool) -> None:
    w = torch.zeros(4, 4)
    w[0, 1] = w[1, 0] = 1.0
    # Node 3 has no neighbours; nodes 0 and 1 are neighbours without a common label.
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    result = replicator(as_csr(w) if as_sparse else w, x.clone().requires_grad_(grad), trace=True)
    assert torch.equal(result.x.detach(), x)
    assert result.n_iter == 1
    assert result.consistency.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1, 4), (3, 1)])
def test_smallest_inputs(shape: tuple[int, int]) -> None:
    n, m = shape
    x = torch.full((n, m), 1 / m)
    torch.testing.assert_close(replicator(torch.ones(n, n), x, trace=True).x, x)


def test_replicator_step_returns_the_average_payoff() -> None:
    x, payoff = torch.tensor([[0.25, 0.75], [0.5, 0.5]]), torch.tensor([[3.0, 1.0], [0.0, 0.0]])
    new_x, average = replicator_step(x, payoff)
    assert new_x.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert average.tolist() == [[1.5], [0.0]]


W, X = torch.ones(3, 3), torch.full((3, 2), 0.5)


def with_entry(t: Tensor, value: float) -> Tensor:
    t = t.clone()
    t[1, 0] = value
    return t


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": with_entry(W, -0.5)}, r"w has .*-0.5.*expected values >= 0: see `clamp`"),
        ({"w": as_csr(with_entry(W, -0.5))}, r"w has .*-0.5.*; expected values >= 0: see `clamp` and `shift`"),
        ({"w": with_entry(W, math.nan)}, r"w has .*expected values in \[0, inf\)"),
        ({"w": as_csr(with_entry(W, math.nan))}, r"w has .*expected values in \[0, inf\)"),
        ({"w": with_entry(W, math.inf)}, r"w has .*expected values in \[0, inf\)"),
        ({"w": torch.ones(3, 4)}, r"w has shape \(3, 4\); expected \(3, 3\)"),
        ({"w": torch.ones(2, 2)}, r"w has shape \(2, 2\); expected \(3, 3\)"),
        ({"x": torch.ones(3)}, r"x has shape \(3,\); expected \(nodes, labels\)"),
        ({"x": torch.ones(3, 2, 1)}, r"x has shape \(3, 2, 1\); expected \(nodes, labels\)"),
        ({"x": with_entry(X, 0.6)}, "x has .*expected non-negative rows that sum to 1"),
        ({"x": torch.tensor([[1.5, -0.5]] * 3)}, "x has .*expected non-negative rows that sum to 1"),
        ({"x": with_entry(X, math.nan)}, "x has .*expected non-negative rows that sum to 1"),
        ({"x": X / 2}, "x has .*expected non-negative rows that sum to 1"),
        ({"fixed": torch.zeros(2, dtype=torch.bool)}, r"fixed has shape \(2,\).* expected \(3,\)"),
        ({"fixed": torch.tensor([0, 1, 2])}, "fixed has type torch.int64; expected bool"),
        ({"class_similarity": torch.eye(3)}, r"class_similarity has shape \(3, 3\); expected \(2, 2\)"),
        ({"class_similarity": -torch.eye(2)}, r"class_similarity has .*-1.*expected values >= 0"),
        ({"class_similarity": torch.full((2, 2), math.nan)}, r"class_similarity has .*expected values in \[0, inf\)"),
        ({"max_iter": -1}, "max_iter is -1; expected 0 or more"),
    ],
)
def test_bad_input_raises(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replicator(**{"w": W, "x": X, **changes})  # type: ignore[arg-type]
