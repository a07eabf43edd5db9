"""Tests that the Triton kernel equals the implementation in torch, and of the fallback without GPU or Triton."""

from __future__ import annotations

import pytest
import torch

from entourage.cluster.models import minimax_paths as module


@pytest.mark.parametrize(("sets", "n"), [(3, 2), (50, 72), (4, 1000)])
def test_the_kernel_returns_the_same_order(sets: int, n: int) -> None:
    pytest.importorskip("triton")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    step = torch.randn(sets, n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    step = step + step.transpose(1, 2)
    result = module._prim_order(step)
    assert torch.equal(result.cpu(), module._prim_order(step.cpu()))


def test_a_failure_of_triton_warns_and_falls_back_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(module, "find_spec", lambda name: object())
    monkeypatch.setattr(module, "import_module", broken)
    module._triton_kernel.cache_clear()
    with pytest.warns(UserWarning, match="Triton cannot be used, clustering on this GPU is slower: no C compiler"):
        assert module._triton_kernel() is None
    module._triton_kernel.cache_clear()


def test_without_triton_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    module._triton_kernel.cache_clear()
    assert module._triton_kernel() is None
    module._triton_kernel.cache_clear()
