"""Replicator dynamics with class priors."""

import pytest
import torch

from entourage.game import replicator
from entourage.game.dynamics import PRIOR_STEP, match_class_priors


def test_class_priors_pull_labels_towards_their_frequency() -> None:
    # Two weakly connected cliques of 3 and 9 nodes, one labelled node each. Without priors the label of the large
    # clique is the more frequent one; equal priors move some nodes to the other label.
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
    without_priors = replicator(w, x, fixed=fixed, max_iter=30, tol=None).x
    with_priors = replicator(w, x, fixed=fixed, class_priors=torch.tensor([0.5, 0.5]), max_iter=30, tol=None).x
    assert without_priors[:, 0].mean() < with_priors[:, 0].mean()
    assert abs(with_priors[:, 0].mean() - 0.5) < abs(without_priors[:, 0].mean() - 0.5)
    torch.testing.assert_close(with_priors.sum(dim=1), torch.ones(12, dtype=torch.float64))
    assert with_priors[0, 0] == 1.0
    assert with_priors[3, 1] == 1.0


def test_one_iteration_with_class_priors_equals_the_formula() -> None:
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


@pytest.mark.parametrize("isolated_fixed", [False, True])
def test_isolated_nodes_count_towards_frequencies_and_keep_their_distribution(isolated_fixed: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    w = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    w[4:], w[:, 4:] = 0, 0
    x = torch.rand(6, 3, generator=generator, dtype=torch.float64)
    x /= x.sum(dim=1, keepdim=True)
    class_priors = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    fixed = torch.arange(6) == (5 if isolated_fixed else 0)
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


def test_matched_priors_change_nothing() -> None:
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
        (torch.tensor([0.9, 0.9]), "class_priors is .*expected non-negative numbers that sum to 1"),
        (torch.tensor([1.5, -0.5]), "class_priors is .*expected non-negative numbers that sum to 1"),
    ],
)
def test_bad_class_priors_raise(class_priors: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replicator(torch.ones(2, 2), torch.full((2, 2), 0.5), class_priors=class_priors)
