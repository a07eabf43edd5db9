from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entourage.cluster.models.minimax_paths import MinimaxPaths, minimax_distances


def lengths(b: int, n: int, seed: int = 0) -> Tensor:
    x = torch.randn(b, n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def by_all_paths(step: Tensor) -> Tensor:
    """The same by allowing one more item on the way after the other."""
    result = step.clone()
    for k in range(step.shape[-1]):
        result = torch.minimum(result, torch.maximum(result[:, :, k : k + 1], result[:, k : k + 1]))
    return torch.where(torch.eye(step.shape[-1], dtype=torch.bool), step, result)


@pytest.mark.parametrize("n", [2, 3, 17, 60])
def test_no_way_has_a_shorter_longest_step(n: int) -> None:
    step = lengths(5, n)
    assert torch.equal(minimax_distances(step), by_all_paths(step))


def test_equal_lengths_are_no_trouble() -> None:
    step = torch.randint(0, 3, (4, 20, 20), generator=torch.Generator().manual_seed(0)).double()
    step = torch.maximum(step, step.transpose(1, 2))
    assert torch.equal(minimax_distances(step), by_all_paths(step))


def test_shuffled_items_have_shuffled_bridges() -> None:
    step, order = lengths(2, 30), torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(minimax_distances(step[:, order][:, :, order]), minimax_distances(step)[:, order][:, :, order])


def test_a_chain_holds_together_what_lies_far_apart() -> None:
    chain = torch.stack([torch.arange(10.0), torch.zeros(10)], dim=1)
    x = torch.cat([chain, torch.tensor([[4.5, 3.0]])])  # one more, off the chain
    result = minimax_distances(torch.cdist(x, x).unsqueeze(0))[0]
    assert result[0, 9] == pytest.approx(1)
    assert result[0, 10] == pytest.approx(9.25**0.5)


def test_gradients_go_to_the_steps_themselves() -> None:
    step = lengths(1, 8).requires_grad_()
    (gradient,) = torch.autograd.grad(minimax_distances(step)[0, 2, 5], step)
    assert gradient.sum() == 1
    (position,) = gradient.nonzero()
    assert step[tuple(position)] == by_all_paths(step.detach())[0, 2, 5]


def test_lengths_begin_as_they_are_and_are_the_same_both_ways() -> None:
    torch.manual_seed(0)
    module = MinimaxPaths(features=3, n_distances=2, hidden=8)
    pairs = torch.randn(2, 9, 9, 3)
    pairs[..., 0] = lengths(2, 9).float().log1p()
    result = module(pairs)
    assert result.shape == (2, 9, 9, 4)
    torch.testing.assert_close(result, result.transpose(1, 2))
    bridge, beyond = result[..., :2], result[..., 2:]
    assert beyond.min() >= 0  # the step itself is a way as well
    assert (bridge + beyond - pairs[..., :1]).abs().max() < 0.3  # what is learned begins small
    assert all(p.grad is None for p in module.parameters())
    result.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
