from __future__ import annotations

import pytest
import torch

from entourage.compute import fork_rng


def test_fork_rng_seeds_the_block_and_restores_the_state() -> None:
    before = torch.random.get_rng_state()
    with fork_rng(3):
        first = torch.rand(4)
    assert torch.equal(torch.random.get_rng_state(), before)
    with fork_rng(3):
        assert torch.equal(torch.rand(4), first)
    with fork_rng(4):
        assert not torch.equal(torch.rand(4), first)
    with pytest.raises(RuntimeError), fork_rng(5):
        torch.rand(4).view(3)
    assert torch.equal(torch.random.get_rng_state(), before)
