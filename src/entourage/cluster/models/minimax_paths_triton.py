"""The order of Prim's algorithm as one GPU kernel; imported only if a GPU and Triton are available."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def prim_order(step: Tensor) -> Tensor:
    """Compute `minimax_paths._prim_order`: step lengths, shape (b, n, n), to indices in order, shape (b, n)."""
    b, n = step.shape[:2]
    order = torch.zeros(b, n, dtype=torch.int64, device=step.device)
    if b and n > 1:
        with torch.cuda.device(step.device):
            _prim_kernel[(b,)](step.detach().contiguous().float(), order, n, BLOCK=triton.next_power_of_2(n))
    return order


@triton.jit  # type: ignore[untyped-decorator]
def _prim_kernel(step, order, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Process one set per program; the distances of all items to the tree stay in registers."""
    batch = tl.program_id(0).to(tl.int64)
    positions = tl.arange(0, BLOCK)
    unvisited = positions < n
    nearest = tl.full((BLOCK,), float("inf"), tl.float32)
    item = tl.argmin(tl.where(positions == 0, 0.0, 1.0), axis=0)  # 0, with the type that the loop assigns
    for rank in range(1, n):
        unvisited = unvisited & (positions != item)
        row = tl.load(step + (batch * n + item) * n + positions, mask=positions < n, other=float("inf"))
        nearest = tl.minimum(nearest, row)
        item = tl.argmin(tl.where(unvisited, nearest, float("inf")), axis=0)
        tl.store(order + batch * n + rank, item)
