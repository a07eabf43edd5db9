"""Games that are told how frequent each label is."""

import pytest
import torch

from entourage.game import replicator
from entourage.game.dynamics import PRIOR_STEP, match_class_priors


def test_shares_pull_labels_towards_their_frequency() -> None:
    # Two cliques of 3 and 9 players, one labelled player each, all weakly tied: without shares the large one's label
    # takes what it reaches; told that both labels are equally frequent, the play hands over some of its followers.
    generator = torch.Generator().manual_seed(0)
    w = torch.rand(12, 12, generator=generator, dtype=torch.float64) * 0.2
    w[:3, :3] += 0.3
    w[3:, 3:] += 0.3
    w = (w + w.T) / 2
    w.fill_diagonal_(0)
    x = torch.full((12, 2), 0.5, dtype=torch.float64)
    x[0], x[3] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    fixed = torch.zeros(12, dtype=torch.bool)
    fixed[[0, 3]] = True
    free = replicator(w, x, fixed=fixed, max_iter=30, tol=None).x
    held = replicator(w, x, fixed=fixed, class_priors=torch.tensor([0.5, 0.5]), max_iter=30, tol=None).x
    assert free[:, 0].mean() < held[:, 0].mean()
    assert abs(held[:, 0].mean() - 0.5) < abs(free[:, 0].mean() - 0.5)
    torch.testing.assert_close(held.sum(dim=1), torch.ones(12, dtype=torch.float64))
    assert held[0, 0] == 1.0
    assert held[3, 1] == 1.0


def test_a_round_with_shares_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(1)
    w = torch.rand(5, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    x /= x.sum(dim=1, keepdim=True)
    class_priors = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    payoff = x * (w @ x)
    y = payoff / payoff.sum(dim=1, keepdim=True)
    expected = y * (class_priors / y.mean(dim=0)) ** PRIOR_STEP
    expected /= expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(replicator(w, x, class_priors=class_priors, max_iter=1, tol=None).x, expected)
    torch.testing.assert_close(
        replicator(w.requires_grad_(), x, class_priors=class_priors, max_iter=1, tol=None).x, expected
    )


@pytest.mark.parametrize("held", [False, True])
def test_who_is_lonely_counts_and_keeps_its_strategy_with_gradients_and_without(held: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    w = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    w[4:], w[:, 4:] = 0, 0
    x = torch.rand(6, 3, generator=generator, dtype=torch.float64)
    x /= x.sum(dim=1, keepdim=True)
    class_priors = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    fixed = torch.arange(6) == (5 if held else 0)
    expected = x.clone()
    for _ in range(3):
        y = expected.clone()
        payoff = expected[:4] * (w[:4] @ expected)
        y[:4] = payoff / payoff.sum(dim=1, keepdim=True)
        balanced = y[:4] * (class_priors / y.mean(dim=0)) ** PRIOR_STEP
        y[:4] = balanced / balanced.sum(dim=1, keepdim=True)
        expected = torch.where(fixed[:, None], x, y)
    options = {"fixed": fixed, "class_priors": class_priors, "max_iter": 3, "tol": None}
    torch.testing.assert_close(replicator(w, x, **options).x, expected)
    torch.testing.assert_close(replicator(w.requires_grad_(), x, **options).x, expected)


def test_equal_shares_leave_a_balanced_play_alone() -> None:
    x = torch.tensor([[0.7, 0.3], [0.3, 0.7]], dtype=torch.float64)
    torch.testing.assert_close(
        match_class_priors(x, torch.tensor([0.5, 0.5], dtype=torch.float64)), torch.ones(2).double()
    )
    one_label = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert match_class_priors(one_label, torch.tensor([1.0, 0.0], dtype=torch.float64)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("class_priors", "message"),
    [
        (torch.tensor([0.5, 0.5, 0.0]), r"class_priors has shape \(3,\); expected \(2,\)"),
        (torch.tensor([0.9, 0.9]), "class_priors is no distribution"),
        (torch.tensor([1.5, -0.5]), "class_priors is no distribution"),
    ],
)
def test_bad_shares_are_refused(class_priors: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replicator(torch.ones(2, 2), torch.full((2, 2), 0.5), class_priors=class_priors)
