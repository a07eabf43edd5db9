"""Prim's order as one GPU kernel; imported only where there are a GPU and Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def prim_order(step: Tensor) -> Tensor:
    """As `minimax_paths._prim_order`: lengths of steps, shape (b, n, n), to positions in order, shape (b, n)."""
    b, n = step.shape[:2]
    order = torch.zeros(b, n, dtype=torch.int64, device=step.device)
    if b and n > 1:
        with torch.cuda.device(step.device):
            _prim_kernel[(b,)](step.detach().contiguous().float(), order, n, BLOCK=triton.next_power_of_2(n))
    return order


@triton.jit  # type: ignore[untyped-decorator]
def _prim_kernel(step, order, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One set a program: what is nearest to all reached so far stays in registers."""
    batch = tl.program_id(0).to(tl.int64)
    positions = tl.arange(0, BLOCK)
    unvisited = positions < n
    nearest = tl.full((BLOCK,), float("inf"), tl.float32)
    item = tl.argmin(tl.where(positions == 0, 0.0, 1.0), axis=0)  # 0, of the type that the loop gives it
    for rank in range(1, n):
        unvisited = unvisited & (positions != item)
        row = tl.load(step + (batch * n + item) * n + positions, mask=positions < n, other=float("inf"))
        nearest = tl.minimum(nearest, row)
        item = tl.argmin(tl.where(unvisited, nearest, float("inf")), axis=0)
        tl.store(order + batch * n + rank, item)
