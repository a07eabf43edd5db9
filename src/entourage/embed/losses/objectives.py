"""What the game's outcome and the classifier are judged by: labels, agreement within a class, or class by class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PROXY_MARGIN = 3.2  # the paper's margin of 0.1 between cosines times its scale of 32


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


def proxy_loss(logits: Tensor, labels: Tensor, margin: float = PROXY_MARGIN) -> Tensor:
    """Proxy-Anchor (Kim et al., 2020) in terms of logits: class by class instead of sample by sample.

    Each class pulls its samples, the worst most of all, until their logits are above the margin, and pushes all others
    until theirs are below minus the margin. On cosines times a scale, with the scale times its margin, it is the
    original loss whose proxies are the classifier's rows.

    Args:
        logits: shape (n, m).
        labels: shape (n,), int64.
        margin: how far logits shall be from 0.

    Returns:
        A scalar. Costs O(n m) time.
    """
    own = torch.zeros_like(logits, dtype=torch.bool).scatter(1, labels[:, None], True)  # (n, m)
    nothing = logits.new_zeros(1, logits.shape[1])  # the 1 of log(1 + sum exp)
    pull = torch.cat([nothing, (margin - logits).masked_fill(~own, -math.inf)]).logsumexp(dim=0)  # (m,)
    push = torch.cat([nothing, (margin + logits).masked_fill(own, -math.inf)]).logsumexp(dim=0)  # (m,)
    return pull.sum() / own.any(dim=0).sum() + push.mean()


def floored(log_x: Tensor, floor: float) -> Tensor:
    """log(x + floor) from log x, same shape; its slope is x / (x + floor), so what is far below the floor has none."""
    return log_x if floor == 0 else torch.logaddexp(log_x, log_x.new_full((), math.log(floor)))
