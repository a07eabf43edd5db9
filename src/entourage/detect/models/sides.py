"""Cached boxes: one size a class, which the thesis puts in the place of sizes that its network averages away."""

from __future__ import annotations

import torch
from torch import Tensor


def typical_sides(boxes: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The median width and height of each class.

    Args:
        boxes: (n, 4).
        labels: (n,) from 1.
        classes: how many classes there are.

    Returns:
        (classes, 2) float32; NaN for classes that no box has.
    """
    sides = (boxes[:, 2:] - boxes[:, :2]).float()
    result = torch.full((classes, 2), torch.nan)
    for label in sorted(set(labels.tolist())):
        result[label - 1] = sides[labels == label].median(0).values.cpu()
    return result


def put_sides(boxes: Tensor, labels: Tensor, sides: Tensor | None) -> Tensor:
    """Boxes (n, 4) with the sides of their classes, (classes, 2), about their centres; as they are where that is NaN.

    Raises:
        ValueError: there are no sides.
    """
    if sides is None:
        raise ValueError("boxes of classes were asked for, but the detector remembers none; expected `remember` first")
    own = boxes[:, 2:] - boxes[:, :2]
    cached = sides.to(boxes)[labels - 1]
    half = torch.where(cached.isnan(), own, cached) / 2
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - half, centres + half], 1)
