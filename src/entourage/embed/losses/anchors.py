"""Anchors: the few samples of each class whose label the game is told (thesis, chapter 4, "Initialization")."""

from __future__ import annotations

import torch
from torch import Tensor


def choose_anchors(labels: Tensor, per_class: int, *, at_random: bool = True) -> tuple[Tensor, Tensor]:
    """Marks anchors in a batch, without the host having to look at the labels.

    Args:
        labels: shape (n,), integers.
        per_class: anchors in each class; a class that has no more samples than this is all anchors.
        at_random: drawn by torch's generator of the labels' device; otherwise those that come first in the batch.

    Returns:
        Whether each sample is an anchor, shape (n,), and the size of its class in the batch, shape (n,). Costs O(n^2).
    """
    n, device = len(labels), labels.device
    same = labels[:, None] == labels[None, :]  # (n, n)
    place = torch.randperm(n, device=device) if at_random else torch.arange(n, device=device)  # (n,)
    before = same & (place[None, :] < place[:, None])  # (n, n)
    return before.sum(dim=1) < per_class, same.sum(dim=1)
