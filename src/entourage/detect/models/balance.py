"""Weights of classes that few objects have."""

from __future__ import annotations

from torch import Tensor


def class_weights(counts: Tensor, bound: float) -> Tensor:
    """Weights by the inverse root of frequency, bounded, so that one rare object cannot shake the training.

    The class in the middle of all objects has weight 1: half of all objects are of classes at least as frequent.

    Args:
        counts: (classes,) objects of each class in training; classes without any count as if they had one.
        bound: weights lie between 1 / bound and bound.

    Returns:
        (classes,) float32.

    Raises:
        ValueError: a count is negative, or the bound is below 1.
    """
    if bound < 1:
        raise ValueError(f"bound is {bound}; expected 1 or more")
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueError(f"counts have shape {tuple(counts.shape)}; expected (classes,), none negative")
    frequency = counts.double().clamp(min=1)
    ordered = frequency.sort(descending=True).values
    middle = ordered[int((ordered.cumsum(0) < ordered.sum() / 2).sum())]
    return (middle / frequency).sqrt().clamp(1 / bound, bound).float()
