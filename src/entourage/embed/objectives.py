"""What the game's outcome is judged by: the labels, or agreement within each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def label_loss(log_x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy J(X(T), y) of each player (thesis, Algorithm 1, step 5).

    Args:
        log_x: logarithms of the strategies, shape (n, m).
        labels: shape (n,).
        smoothing: share of the target that goes to all m labels evenly.

    Returns:
        Shape (n,).
    """
    loss = -log_x.gather(1, labels[:, None]).squeeze(1)  # (n,)
    return loss if smoothing == 0 else torch.lerp(loss, -log_x.mean(dim=1), smoothing)


def agreement_loss(log_x: Tensor, labels: Tensor, takes_part: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence between strategies of one class (thesis, "Alternative loss formulation").

    Args:
        log_x: logarithms of the strategies, shape (n, m), finite where players take part.
        labels: shape (n,).
        takes_part: players whose pairs count, shape (n,), boolean; pairs are ordered, and of different players.

    Returns:
        A scalar; 0 where there is no pair. Costs O(n^2 m) time.
    """
    log_x = torch.where(takes_part[:, None], log_x, -math.log(log_x.shape[1]))  # (n, m), finite everywhere
    x = log_x.exp()
    divergence = (x * log_x).sum(dim=1, keepdim=True) - x @ log_x.T  # (n, n), D(x_i || x_j)
    pairs = (labels[:, None] == labels[None, :]) & takes_part[:, None] & takes_part[None, :]  # (n, n)
    pairs = pairs & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return (divergence * pairs).sum() / pairs.sum().clamp_min(1)


def floored(log_x: Tensor, floor: float) -> Tensor:
    """log(x + floor) from log x, same shape; its slope is x / (x + floor), so what is far below the floor has none."""
    return log_x if floor == 0 else torch.logaddexp(log_x, log_x.new_full((), math.log(floor)))
