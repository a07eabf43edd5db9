"""Conjugate gradients for many right-hand sides at once: what the linear rivals of the game are solved with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor], b: Tensor, diagonal: Tensor, *, tol: float, max_iter: int
) -> tuple[Tensor, int, bool]:
    """Solves A F = B for a symmetric positive (semi)definite A, each column by itself but all in one product.

    Args:
        apply: F -> A F.
        b: B, shape (n, m), in the range of A.
        diagonal: the diagonal of A, shape (n, 1), positive: the preconditioner.
        tol: the residual relative to b at which a column is done.
        max_iter: the most steps.

    Returns:
        F, shape (n, m), the steps taken, and whether all columns are done.
    """
    x = torch.zeros_like(b)
    residual = b.clone()
    direction = z = residual / diagonal
    power = (residual * z).sum(dim=0)  # (m,)
    target = tol * b.norm(dim=0)
    for step in range(max_iter):
        if bool((residual.norm(dim=0) <= target).all()):
            return x, step, True
        image = apply(direction)
        curvature = (direction * image).sum(dim=0)
        # A column that is done has no curvature left to divide by: it rests.
        length = torch.where(curvature > 0, power / curvature.clamp_min(torch.finfo(b.dtype).tiny), 0)
        x = x + length * direction
        residual = residual - length * image
        z = residual / diagonal
        previous, power = power, (residual * z).sum(dim=0)
        turn = torch.where(previous > 0, power / previous.clamp_min(torch.finfo(b.dtype).tiny), 0)
        direction = z + turn * direction
    return x, max_iter, bool((residual.norm(dim=0) <= target).all())
