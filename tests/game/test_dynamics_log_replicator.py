"""The game in logarithms against the game, and where float32 would leave the game itself."""

import pytest
import torch
from torch import Tensor

from entourage.game import log_replicator, replicator


def random_game(n: int = 7, m: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """W symmetric with zeros, logits, and a field; all float64."""
    generator = torch.Generator().manual_seed(0)
    w = torch.rand(n, n, generator=generator, dtype=torch.float64)
    w = w * (torch.rand(n, n, generator=generator) < 0.7)
    logits = torch.randn(n, m, generator=generator, dtype=torch.float64)
    return w + w.T, logits, torch.rand(n, m, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_it_is_the_game_with_its_gradients(rounds: int) -> None:
    w, logits, _ = random_game()
    slope = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w.requires_grad_(), logits.requires_grad_()
    plain = replicator(w, logits.softmax(dim=1), max_iter=rounds, tol=None).x.log()
    logs = log_replicator(w, logits.log_softmax(dim=1), n_iter=rounds)
    torch.testing.assert_close(logs, plain)
    expected = torch.autograd.grad((plain * slope).sum(), (w, logits), allow_unused=True)
    found = torch.autograd.grad((logs * slope).sum(), (w, logits), allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)  # nobody looks at W in no rounds
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_a_field_is_the_voice_of_players_who_never_move() -> None:
    w, logits, _ = random_game()
    first = log_replicator(
        w[:5, :5], logits[:5].log_softmax(1), fixed_payoffs=w[:5, 5:] @ torch.eye(4).double()[:2], n_iter=3
    )
    log_x = torch.cat([logits[:5].log_softmax(1), torch.eye(4).double()[:2].log()])
    torch.testing.assert_close(log_replicator(w, log_x, n_iter=3)[:5], first)


def test_the_certain_never_move_and_pass_finite_gradients() -> None:
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


def test_who_has_no_support_stays() -> None:
    w, logits, _ = random_game()
    w[3], w[:, 3] = 0, 0
    log_x = logits.log_softmax(dim=1)
    torch.testing.assert_close(log_replicator(w, log_x, n_iter=3)[3], log_x[3])


def test_float32_holds_what_the_game_itself_would_lose() -> None:
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
