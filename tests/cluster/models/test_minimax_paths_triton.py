"""The kernel and the plain way reach items in the same order; where there is no GPU, only the plain way is used."""

from __future__ import annotations

import pytest
import torch

from entourage.cluster.models import minimax_paths as module


@pytest.mark.parametrize(("sets", "n"), [(3, 2), (50, 72), (4, 1000)])
def test_the_kernel_reaches_items_in_the_same_order(sets: int, n: int) -> None:
    pytest.importorskip("triton")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    step = torch.randn(sets, n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    step = step + step.transpose(1, 2)
    result = module._prim_order(step)
    assert torch.equal(result.cpu(), module._prim_order(step.cpu()))


def test_where_triton_does_not_work_the_plain_way_is_taken_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
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
