from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entourage.cluster.models.minimax_paths import MinimaxPaths, minimax_distances


def lengths(b: int, n: int, seed: int = 0) -> Tensor:
    x = torch.randn(b, n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def by_all_paths(step: Tensor) -> Tensor:
    """Compute minimax distances by allowing one further item on the paths at a time."""
    result = step.clone()
    for k in range(step.shape[-1]):
        result = torch.minimum(result, torch.maximum(result[:, :, k : k + 1], result[:, k : k + 1]))
    return torch.where(torch.eye(step.shape[-1], dtype=torch.bool), step, result)


@pytest.mark.parametrize("n", [2, 3, 17, 60])
def test_minimax_distances_match_an_exhaustive_computation(n: int) -> None:
    step = lengths(5, n)
    assert torch.equal(minimax_distances(step), by_all_paths(step))


def test_equal_lengths_are_supported() -> None:
    step = torch.randint(0, 3, (4, 20, 20), generator=torch.Generator().manual_seed(0)).double()
    step = torch.maximum(step, step.transpose(1, 2))
    assert torch.equal(minimax_distances(step), by_all_paths(step))


def test_minimax_distances_are_equivariant_to_permutations() -> None:
    step, order = lengths(2, 30), torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(minimax_distances(step[:, order][:, :, order]), minimax_distances(step)[:, order][:, :, order])


def test_a_chain_has_the_minimax_distance_of_its_steps() -> None:
    chain = torch.stack([torch.arange(10.0), torch.zeros(10)], dim=1)
    x = torch.cat([chain, torch.tensor([[4.5, 3.0]])])  # one more, off the chain
    result = minimax_distances(torch.cdist(x, x).unsqueeze(0))[0]
    assert result[0, 9] == pytest.approx(1)
    assert result[0, 10] == pytest.approx(9.25**0.5)


def test_the_gradient_is_that_of_the_longest_step() -> None:
    step = lengths(1, 8).requires_grad_()
    (gradient,) = torch.autograd.grad(minimax_distances(step)[0, 2, 5], step)
    assert gradient.sum() == 1
    (position,) = gradient.nonzero()
    assert step[tuple(position)] == by_all_paths(step.detach())[0, 2, 5]


def test_initial_lengths_are_close_to_distances_and_symmetric() -> None:
    torch.manual_seed(0)
    module = MinimaxPaths(features=3, n_distances=2, hidden=8)
    pairs = torch.randn(2, 9, 9, 3)
    pairs[..., 0] = lengths(2, 9).float().log1p()
    result = module(pairs)
    assert result.shape == (2, 9, 9, 4)
    torch.testing.assert_close(result, result.transpose(1, 2))
    bridge, beyond = result[..., :2], result[..., 2:]
    assert beyond.min() >= 0  # the direct step is a path, too
    assert (bridge + beyond - pairs[..., :1]).abs().max() < 0.3  # the learned part is initially small
    assert all(p.grad is None for p in module.parameters())
    result.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
