"""Where the groups of a 2D set lie: in random cells of a random grid, some stretched into a free neighbour cell."""

from __future__ import annotations

import torch
from torch import Tensor

STRETCH = 0.5  # share of the groups that try to grow into a neighbour cell
_STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))


def draw_boxes(groups: Tensor, most: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws a rectangle for every group; no two overlap.

    A set of g groups has a grid of g to 1.5 g cells a side. Every group gets a cell, and half of them ask for the cell
    on one side of theirs as well, which they get if it is on the grid and free.

    Args:
        groups: the number of groups of each set, shape (b,).
        most: the largest number there can be, g.
        generator: the source of randomness, on the device of `groups`.

    Returns:
        Lower left corners and sizes within the unit square, each (b, g, 2); those beyond a set's groups mean nothing.
        Costs O(b g^2) memory and g steps.
    """
    device = groups.device
    b, widest = len(groups), most + most // 2
    spare = torch.rand(b, generator=generator, device=device) * (groups // 2 + 1)
    side = (groups + spare.long()).clamp(max=widest)  # (b,), uniform over g, ..., floor(1.5 g)
    axis = torch.arange(widest, device=device)
    inside = axis < side.unsqueeze(-1)  # (b, s)
    on_grid = inside.unsqueeze(-1) & inside.unsqueeze(-2)  # (b, s, s)
    lots = torch.rand(b, widest * widest, generator=generator, device=device)
    cells = lots.masked_fill(~on_grid.flatten(1), -1).topk(most, dim=1).indices  # (b, g), the first groups' are valid
    corner = torch.stack([cells // widest, cells % widest], dim=-1)  # (b, g, 2)
    there = torch.arange(most, device=device) < groups.unsqueeze(-1)  # (b, g)
    extent = _stretched(corner, there, on_grid, cells, generator)
    scale = 1 / side.to(torch.get_default_dtype()).view(-1, 1, 1)
    return torch.minimum(corner, corner + extent) * scale, (1 + extent.abs()) * scale


def _stretched(corner: Tensor, there: Tensor, on_grid: Tensor, cells: Tensor, generator: torch.Generator) -> Tensor:
    """The step by which each group grows, shape (b, g, 2): one of the four directions, or none."""
    b, most, _ = corner.shape
    widest = on_grid.shape[1]
    free = on_grid.flatten(1).scatter(1, cells, on_grid.flatten(1).gather(1, cells) & ~there)  # (b, s * s)
    way = torch.randint(4, (b, most), generator=generator, device=corner.device)
    asks = (torch.rand(b, most, generator=generator, device=corner.device) < STRETCH) & there
    step = torch.tensor(_STEPS, device=corner.device)[way]  # (b, g, 2)
    target = corner + step
    valid = ((target >= 0) & (target < widest)).all(-1) & asks  # (b, g)
    flat = (target[..., 0] * widest + target[..., 1]).clamp(0, widest * widest - 1)  # (b, g)
    grown = []
    for g in range(most):  # one after the other: two groups may ask for the same cell
        place = flat[:, g : g + 1]
        gets = valid[:, g : g + 1] & free.gather(1, place)  # (b, 1)
        free = free.scatter(1, place, free.gather(1, place) & ~gets)
        grown.append(gets)
    return step * torch.cat(grown, dim=1).unsqueeze(-1)
