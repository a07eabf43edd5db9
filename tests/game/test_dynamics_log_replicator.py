"""Replicator dynamics in logarithms against `replicator`, and beyond the range of float32."""

import pytest
import torch
from torch import Tensor

from entourage.game import log_replicator, replicator


def random_game(n: int = 7, m: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, symmetric with zeros, logits and fixed payoffs; all float64."""
    generator = torch.Generator().manual_seed(0)
    w = torch.rand(n, n, generator=generator, dtype=torch.float64)
    w = w * (torch.rand(n, n, generator=generator) < 0.7)
    logits = torch.randn(n, m, generator=generator, dtype=torch.float64)
    return w + w.T, logits, torch.rand(n, m, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n_iter", [0, 1, 5])
def test_equals_replicator_including_gradients(n_iter: int) -> None:
    w, logits, _ = random_game()
    slope = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w.requires_grad_(), logits.requires_grad_()
    direct = replicator(w, logits.softmax(dim=1), max_iter=n_iter, tol=None).x.log()
    in_logs = log_replicator(w, logits.log_softmax(dim=1), n_iter=n_iter)
    torch.testing.assert_close(in_logs, direct)
    expected = torch.autograd.grad((direct * slope).sum(), (w, logits), allow_unused=True)
    actual = torch.autograd.grad((in_logs * slope).sum(), (w, logits), allow_unused=True)
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)  # W is unused without iterations
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_fixed_payoffs_equal_those_of_fixed_nodes() -> None:
    w, logits, _ = random_game()
    first = log_replicator(
        w[:5, :5], logits[:5].log_softmax(1), fixed_payoffs=w[:5, 5:] @ torch.eye(4).double()[:2], n_iter=3
    )
    log_x = torch.cat([logits[:5].log_softmax(1), torch.eye(4).double()[:2].log()])
    torch.testing.assert_close(log_replicator(w, log_x, n_iter=3)[:5], first)


def test_one_hot_nodes_never_change_and_have_finite_gradients() -> None:
    w, logits, fixed_payoffs = random_game()
    w.requires_grad_()
    log_x = logits.log_softmax(dim=1)
    log_x[2] = torch.tensor([-torch.inf, 0, -torch.inf, -torch.inf])
    log_x.requires_grad_()
    result = log_replicator(w, log_x, fixed_payoffs=fixed_payoffs, n_iter=4)
    assert torch.equal(result[2], log_x[2])
    free = torch.arange(7) != 2
    gradients = torch.autograd.grad(result[free].sum(), (w, log_x))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_nodes_without_payoff_keep_their_distribution() -> None:
    w, logits, _ = random_game()
    w[3], w[:, 3] = 0, 0
    log_x = logits.log_softmax(dim=1)
    torch.testing.assert_close(log_replicator(w, log_x, n_iter=3)[3], log_x[3])


def test_probabilities_below_float32_keep_value_and_gradient() -> None:
    # A probability of exp(-400) is 0 in float32; in logarithms it keeps its value and its gradient.
    w = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    logits = torch.tensor([[0.0, -400.0], [0.0, 0.0]], requires_grad=True)
    result = log_replicator(w, logits.log_softmax(dim=1), n_iter=1)
    assert result[0, 1].item() == pytest.approx(-400)
    (gradient,) = torch.autograd.grad(-result[0, 1], logits)
    torch.testing.assert_close(gradient[0], torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_any_payoff_has_finite_gradients_in_float32(size: float) -> None:
    w, logits, _ = (t.float() for t in random_game(20, 6))
    w, logits = (size * w).requires_grad_(), (200 * logits).requires_grad_()
    result = log_replicator(w, logits.log_softmax(dim=1), n_iter=3)
    gradients = torch.autograd.grad(result.sum(), (w, logits))
    assert result.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
