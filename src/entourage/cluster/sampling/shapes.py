"""Shapes and positions of the clusters of generated 2D sets (appendix A).

Rings, moons and Gaussians are drawn in unit squares, which are placed in random cells of a random grid; some extend
into a free neighbouring cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupKind:
    """A kind of group of clusters.

    Attributes:
        name: name of the shape.
        n_clusters: number of clusters in a group.
        min_points: minimum number of points of a cluster for a recognisable shape.
    """

    name: str
    n_clusters: int
    min_points: int


KINDS = (
    GroupKind("ring", 1, 10),
    GroupKind("concentric rings", 2, 5),
    GroupKind("moon", 1, 10),
    GroupKind("pair of moons", 2, 5),
    GroupKind("Gaussian", 1, 1),
    GroupKind("two Gaussians", 2, 1),
    GroupKind("five Gaussians", 5, 1),
)
RINGS, MOONS, GAUSSIANS = (0, 1), (2, 3), (4, 5, 6)
MAX_GROUP_CLUSTERS = max(kind.n_clusters for kind in KINDS)

INNER_RADIUS = (0.1, 0.4)  # range of the inner ring's radius, relative to the outer ring
RING_NOISE, MOON_NOISE = 0.02, 0.03  # maximum standard deviation around the curve, relative to the radius
FRAME = (0.25, 0.75)  # extent of rings and moons within their square
SIGMA = 0.05  # standard deviation of a Gaussian, relative to the square
MIN_CENTER_DISTANCE = 0.2  # minimum distance between the centres of two Gaussians of a group
MARGIN = 0.1  # distance of centres from the border, which separates Gaussians of neighbouring squares
CENTER_DRAWS = 24  # draws of all centres of a group; with 99 % probability, one has the minimum distance
SIGMA_RANGE = (0.5, 1.5)  # widths of Gaussians in varied sets, in units of SIGMA
UNIFORM_FRACTION = 0.25  # fraction of uniform squares among the Gaussians of varied sets


def draw_shapes(
    kind: Tensor,
    group: Tensor,
    role: Tensor,
    generator: torch.Generator,
    noise: Tensor | None = None,
    varies: Tensor | None = None,
) -> Tensor:
    """Draw the coordinates of all points within the squares of their groups.

    Args:
        kind: kind of each group as an index in `KINDS`, shape (b, g); -1 beyond the last group.
        group: group of each point, shape (b, n).
        role: cluster of each point within its group, shape (b, n).
        generator: random generator, on the device of the tensors.
        noise: factor of the noise of curves in each set, shape (b,); None for 1.
        varies: mask of the sets in which Gaussians differ in width, and some are uniform squares, shape (b,); None for
            no set.

    Returns:
        Coordinates, shape (b, n, 2), within the unit square except for the tails of Gaussians. Costs O(b (n + g)).
    """
    point_kind = kind.gather(1, group)  # (b, n)
    curves = _draw_curves(kind, group, role, point_kind, generator, noise)
    clouds = _draw_clouds(kind, group, role, generator, varies)
    return torch.where((point_kind >= GAUSSIANS[0]).unsqueeze(-1), clouds, curves)


def _draw_clouds(
    kind: Tensor, group: Tensor, role: Tensor, generator: torch.Generator, varies: Tensor | None
) -> Tensor:
    """Draw points around the centres of Gaussians, shape (b, n, 2)."""
    b, g = kind.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=kind.device)

    width = torch.full((b, g, MAX_GROUP_CLUSTERS), SIGMA, device=kind.device)
    if varies is not None:
        low, high = (math.log(factor) for factor in SIGMA_RANGE)
        others = SIGMA * torch.exp(low + (high - low) * uniform(b, g, MAX_GROUP_CLUSTERS))
        width = torch.where(varies.view(-1, 1, 1), others, width)
    centers = _draw_centers(kind, width, generator)  # (b, g, m, 2)
    index = group * MAX_GROUP_CLUSTERS + role  # (b, n)
    point_index = index.unsqueeze(-1).expand(-1, -1, 2)
    step = torch.randn(point_index.shape, generator=generator, device=kind.device)  # (b, n, 2), of variance 1
    if varies is not None:
        even = (uniform(b, g * MAX_GROUP_CLUSTERS) < UNIFORM_FRACTION).gather(1, index) & varies.unsqueeze(-1)  # (b, n)
        step = torch.where(even.unsqueeze(-1), math.sqrt(3) * (2 * uniform(*point_index.shape) - 1), step)
    return centers.flatten(1, 2).gather(1, point_index) + width.flatten(1).gather(1, index).unsqueeze(-1) * step


def _draw_curves(
    kind: Tensor,
    group: Tensor,
    role: Tensor,
    point_kind: Tensor,
    generator: torch.Generator,
    noise_scale: Tensor | None,
) -> Tensor:
    """Draw points on rings and moons, rotated by the group's angle and fitted into the frame, shape (b, n, 2)."""

    def uniform(shape: torch.Size, low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator, device=kind.device)

    inner = uniform(kind.shape, *INNER_RADIUS).gather(1, group)
    angle = uniform(kind.shape, 0, 2 * math.pi).gather(1, group)
    is_moon = (point_kind == MOONS[0]) | (point_kind == MOONS[1])
    noise = uniform(kind.shape, 0, 1).gather(1, group) * torch.where(is_moon, MOON_NOISE, RING_NOISE)
    noise = noise if noise_scale is None else noise * noise_scale.unsqueeze(-1)  # (b, n)
    t = uniform(group.shape, 0, 2 * math.pi)
    radius = torch.where(role == 1, inner, 1.0)
    ring = torch.stack([radius * t.cos(), radius * t.sin()], dim=-1)  # (b, n, 2)
    half = t / 2  # a moon is half a ring; the second moon is inverted and interlocks with the first
    upper = torch.stack([half.cos(), half.sin()], dim=-1)
    lower = torch.stack([1 - half.cos(), 0.5 - half.sin()], dim=-1)
    moon = torch.where((role == 1).unsqueeze(-1), lower, upper)
    points = torch.where(is_moon.unsqueeze(-1), moon, ring)
    points = points + noise.unsqueeze(-1) * torch.randn(points.shape, generator=generator, device=kind.device)
    c, s = angle.cos(), angle.sin()
    turned = torch.stack([c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], dim=-1)
    return _fit_to_frame(turned, group, kind.shape[1])


def _fit_to_frame(points: Tensor, group: Tensor, groups: int) -> Tensor:
    """Shift and scale each group into the frame, preserving its aspect ratio."""
    index = group.unsqueeze(-1).expand_as(points)
    empty = points.new_zeros(points.shape[0], groups, 2)
    low = empty.scatter_reduce(1, index, points, "amin", include_self=False)  # (b, g, 2)
    high = empty.scatter_reduce(1, index, points, "amax", include_self=False)
    side = (high - low).amax(dim=-1, keepdim=True).clamp_min(1e-6)  # (b, g, 1)
    middle = ((low + high) / 2).gather(1, index)
    scale = ((FRAME[1] - FRAME[0]) / side).expand(-1, -1, 2).gather(1, index)
    return (points - middle) * scale + 0.5


def _draw_centers(kind: Tensor, width: Tensor, generator: torch.Generator) -> Tensor:
    """Draw centres of the Gaussians of each group, shape (b, g, m, 2), separated by their widths (b, g, m)."""
    shape = (*kind.shape, CENTER_DRAWS, MAX_GROUP_CLUSTERS, 2)
    centers = MARGIN + (1 - 2 * MARGIN) * torch.rand(shape, generator=generator, device=kind.device)
    clusters = torch.tensor([k.n_clusters for k in KINDS], device=kind.device)[kind.clamp_min(0)]  # (b, g)
    exists = torch.arange(MAX_GROUP_CLUSTERS, device=kind.device) < clusters.unsqueeze(-1)  # (b, g, m)
    gaps = (centers.unsqueeze(-2) - centers.unsqueeze(-3)).square().sum(-1).sqrt()  # (b, g, t, m, m)
    gap_scale = 2 * SIGMA / (width.unsqueeze(-1) + width.unsqueeze(-2))  # (b, g, m, m), smaller for wide Gaussians
    gaps = gaps * gap_scale.unsqueeze(2)
    pair = exists.unsqueeze(-1) & exists.unsqueeze(-2)  # (b, g, m, m)
    pair = pair & ~torch.eye(MAX_GROUP_CLUSTERS, dtype=torch.bool, device=kind.device)
    nearest = gaps.masked_fill(~pair.unsqueeze(2), 2.0).flatten(-2).amin(-1)  # (b, g, t)
    # The first draw with the minimum distance, or, rarely, the draw with the largest distance.
    best = torch.where(nearest >= MIN_CENTER_DISTANCE, 2.0, nearest).argmax(-1)  # (b, g)
    chosen = best[..., None, None, None].expand(-1, -1, 1, MAX_GROUP_CLUSTERS, 2)
    return centers.gather(2, chosen).squeeze(2)


EXTENDED_FRACTION = 0.5  # fraction of the groups that request a neighbouring cell
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))


def draw_boxes(groups: Tensor, max_groups: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a rectangle for each group, without overlaps.

    A set of g groups has a square grid of g to 1.5 g cells per axis. Each group gets a cell; half of the groups also
    request one of the neighbouring cells, and get it if it exists and is free.

    Args:
        groups: number of groups of each set, shape (b,).
        max_groups: maximum number of groups, g.
        generator: random generator, on the device of `groups`.

    Returns:
        Lower left corners and sizes within the unit square, each (b, g, 2); undefined beyond the groups of a set.
        Costs O(b g^2) memory and g sequential steps.
    """
    device = groups.device
    b, max_cells = len(groups), max_groups + max_groups // 2
    spare = torch.rand(b, generator=generator, device=device) * (groups // 2 + 1)
    side = (groups + spare.long()).clamp(max=max_cells)  # (b,), uniform over g, ..., floor(1.5 g)
    axis = torch.arange(max_cells, device=device)
    inside = axis < side.unsqueeze(-1)  # (b, s)
    on_grid = inside.unsqueeze(-1) & inside.unsqueeze(-2)  # (b, s, s)
    random = torch.rand(b, max_cells * max_cells, generator=generator, device=device)
    # (b, g), valid for the groups of the set
    cells = random.masked_fill(~on_grid.flatten(1), -1).topk(max_groups, dim=1).indices
    corner = torch.stack([cells // max_cells, cells % max_cells], dim=-1)  # (b, g, 2)
    exists = torch.arange(max_groups, device=device) < groups.unsqueeze(-1)  # (b, g)
    extent = _extend_cells(corner, exists, on_grid, cells, generator)
    scale = 1 / side.to(torch.get_default_dtype()).view(-1, 1, 1)
    return torch.minimum(corner, corner + extent) * scale, (1 + extent.abs()) * scale


def _extend_cells(corner: Tensor, exists: Tensor, on_grid: Tensor, cells: Tensor, generator: torch.Generator) -> Tensor:
    """Return the extension of each group, shape (b, g, 2): one of the four directions, or zero."""
    b, max_groups, _ = corner.shape
    max_cells = on_grid.shape[1]
    free = on_grid.flatten(1).scatter(1, cells, on_grid.flatten(1).gather(1, cells) & ~exists)  # (b, s * s)
    direction = torch.randint(4, (b, max_groups), generator=generator, device=corner.device)
    requests = (torch.rand(b, max_groups, generator=generator, device=corner.device) < EXTENDED_FRACTION) & exists
    step = torch.tensor(_DIRECTIONS, device=corner.device)[direction]  # (b, g, 2)
    target = corner + step
    valid = ((target >= 0) & (target < max_cells)).all(-1) & requests  # (b, g)
    flat = (target[..., 0] * max_cells + target[..., 1]).clamp(0, max_cells * max_cells - 1)  # (b, g)
    extended = []
    for g in range(max_groups):  # sequentially, as two groups may request the same cell
        index = flat[:, g : g + 1]
        granted = valid[:, g : g + 1] & free.gather(1, index)  # (b, 1)
        free = free.scatter(1, index, free.gather(1, index) & ~granted)
        extended.append(granted)
    return step * torch.cat(extended, dim=1).unsqueeze(-1)
