from __future__ import annotations

import pytest
import torch

from entourage.compute import fork_rng


def test_a_seed_decides_what_is_drawn_and_nothing_after_it() -> None:
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
