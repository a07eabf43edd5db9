"""Exact coverage of pixels by polygons, for all shapes of a page in one vectorised pass.

Every shape is rasterised into a separate small buffer. Image, masks and boxes are then computed from the same buffers:
the image is their superposition, a mask is one buffer, a box is its extent. Nothing is rendered twice, and boxes, masks
and image are always consistent.

The method is that of font rasterisers: each edge adds the signed area between itself and the far side of the pixel to
every pixel that it crosses, and a cumulative sum converts these areas to coverage. The result is the exact area of the
shape in each pixel, unless parts of the shape overlap: their areas are added, with the full pixel as the maximum. The
sum runs down the columns because COCO's masks are stored by columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.engrave.render.outlines import Edges

Ints = NDArray[np.int64]
_MAX_COORDINATE = 20_000.0  # pixels; larger coordinates are clipped, because they would need memory


@dataclass(frozen=True)
class Ink:
    """The pixels that shapes cover, ordered by shape, column (from the left) and row (from the top).

    Attributes:
        x, y: coordinates of the pixel, which may be outside the page, shape (n,) each.
        coverage: fraction of the pixel that is covered, in (0, 1], shape (n,).
        start: index of the first pixel of each shape, and n, shape (shapes + 1,).
    """

    x: Ints
    y: Ints
    coverage: NDArray[np.float32]
    start: Ints


def rasterise(shapes: list[Edges]) -> Ink:
    """Compute for each shape which pixels it covers, and by how much.

    Where parts of a shape with the same orientation overlap, their areas in a pixel are added, to at most 1. Holes have
    the opposite orientation.

    Args:
        shapes: edges of each shape, shape (n, 4), in pixels; pixel (i, j) is the square from (i, j) to (i + 1, j + 1).

    Returns:
        The covered pixels. Costs O(pixels in the bounding boxes) time and memory.
    """
    sizes = np.array([len(edges) for edges in shapes], dtype=np.int64)
    rectangles = _axis_aligned(shapes, sizes)
    others = np.setdiff1d(np.flatnonzero(sizes), rectangles, assume_unique=True)
    parts = [_boxes(shapes, rectangles), _polygons(shapes, others)]
    counts = np.zeros(len(shapes), dtype=np.int64)
    for shape, *_ in parts:
        counts += np.bincount(shape, minlength=len(shapes))
    start = np.concatenate([[0], np.cumsum(counts)])
    total = int(start[-1])
    ink = Ink(np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.float32), start)
    for shape, x, y, coverage in parts:
        # Either part has the pixels of a shape one after another: copy them to the position of the shape in `ink`.
        first = np.concatenate([[True], shape[1:] != shape[:-1]]).nonzero()[0] if len(shape) else shape
        index = start[shape] + np.arange(len(shape)) - np.repeat(first, np.diff(np.append(first, len(shape))))
        ink.x[index], ink.y[index], ink.coverage[index] = x, y, np.minimum(coverage, 1.0)
    return ink


_Part = tuple[Ints, Ints, Ints, NDArray[np.float64]]  # shape, x, y, coverage of each pixel
_MIN_COVERAGE = 1e-3  # below the resolution of an eight-bit image


def _axis_aligned(shapes: list[Edges], sizes: Ints) -> Ints:
    """Return the indices of axis-aligned rectangles (staff lines, stems, ledger lines), about half of all marks."""
    four = np.flatnonzero(sizes == 4)
    if len(four) == 0:
        return four
    edges = np.stack([shapes[i] for i in four])  # (k, 4, 4)
    flat = (edges[:, :, 0] == edges[:, :, 2]) | (edges[:, :, 1] == edges[:, :, 3])
    return np.asarray(four[flat.all(axis=1)])


def _boxes(shapes: list[Edges], which: Ints) -> _Part:
    """Rasterise axis-aligned rectangles: the coverage is the covered width times the covered height."""
    if len(which) == 0:
        return which, which, which, np.empty(0)
    corners = np.clip(np.stack([shapes[i] for i in which])[:, :, :2], -_MAX_COORDINATE, _MAX_COORDINATE)
    low, high = corners.min(axis=1), corners.max(axis=1)  # (k, 2)
    first = np.floor(low).astype(np.int64)
    size = np.ceil(high).astype(np.int64) - first
    # Compute the coverage of columns and rows first; that of a pixel is the product.
    box, column = _expand_ranges(first[:, 0], size[:, 0])
    covered_width = np.minimum(high[box, 0], column + 1) - np.maximum(low[box, 0], column)
    row_box, row = _expand_ranges(first[:, 1], size[:, 1])
    covered_height = np.minimum(high[row_box, 1], row + 1) - np.maximum(low[row_box, 1], row)
    rows = np.cumsum(size[:, 1]) - size[:, 1]
    across, down = _expand_ranges(rows[box], size[box, 1])
    coverage = covered_width[across] * covered_height[down]
    visible = np.flatnonzero(coverage > _MIN_COVERAGE)
    across, down = across[visible], down[visible]
    return which[box[across]], column[across], row[down], coverage[visible]


def _polygons(shapes: list[Edges], which: Ints) -> _Part:
    """Rasterise shapes of any form by accumulated signed areas."""
    if len(which) == 0:
        return which, which, which, np.empty(0)
    sizes = np.array([len(shapes[i]) for i in which])
    edges = np.clip(np.concatenate([shapes[i] for i in which]), -_MAX_COORDINATE, _MAX_COORDINATE)
    edges = edges[:, [1, 0, 3, 2]]  # y before x
    first = np.cumsum(sizes) - sizes
    low = np.floor(np.minimum.reduceat(np.minimum(edges[:, :2], edges[:, 2:]), first))  # (k, 2)
    high = np.ceil(np.maximum.reduceat(np.maximum(edges[:, :2], edges[:, 2:]), first))
    length = (high[:, 0] - low[:, 0]).astype(np.int64) + 2  # the sum reaches one pixel beyond the last edge
    area = length * np.maximum(high[:, 1] - low[:, 1], 1).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(area)])
    polygon = np.repeat(np.arange(len(which)), sizes)
    edges = edges - low[polygon][:, [0, 1, 0, 1]]
    covered = np.abs(np.cumsum(_accumulate(edges, length[polygon], begin[polygon], int(begin[-1]))))
    index = np.flatnonzero(covered > _MIN_COVERAGE)
    shape = np.repeat(np.arange(len(which)), np.diff(np.searchsorted(index, begin)))
    column, row = np.divmod(index - begin[shape], length[shape])
    corner = low.astype(np.int64)
    return which[shape], column + corner[shape, 1], row + corner[shape, 0], covered[index]


def _accumulate(edges: Edges, length: Ints, begin: Ints, total: int) -> NDArray[np.float64]:
    """Return the signed areas of edges in the buffers, shape (total,).

    Edges are u0, v0, u1, v1 relative to the corner of their buffer; u is along the columns of a buffer, v across.
    """
    u0, v0, u1, v1 = edges.T
    across = v0 != v1
    forward = v0 < v1
    sign = np.where(forward, 1.0, -1.0)[across]
    # Give all edges the same direction.
    u0, v0, u1, v1 = (np.where(forward, a, b)[across] for a, b in ((u0, u1), (v0, v1), (u1, u0), (v1, v0)))
    length, begin = length[across], begin[across]
    slope = (u1 - u0) / (v1 - v0)
    # Divide edges into one piece per column that they cross ...
    lane0 = np.floor(v0).astype(np.int64)
    edge_index, lane = _expand_ranges(lane0, np.ceil(v1).astype(np.int64) - lane0)
    before = np.maximum(v0[edge_index], lane)
    after = np.minimum(v1[edge_index], lane + 1)
    ua = u0[edge_index] + (before - v0[edge_index]) * slope[edge_index]
    ub = u0[edge_index] + (after - v0[edge_index]) * slope[edge_index]
    height = (after - before) * sign[edge_index]
    base = begin[edge_index] + lane * length[edge_index]
    # ... and then into one piece per pixel.
    left, right = np.minimum(ua, ub), np.maximum(ua, ub)
    first = np.floor(left).astype(np.int64)
    edge_index, position = _expand_ranges(first, np.maximum(np.ceil(right).astype(np.int64) - first, 1))
    left, right, height, base = left[edge_index], right[edge_index], height[edge_index], base[edge_index]
    a, b = np.maximum(left, position), np.minimum(right, position + 1)
    span = right - left
    height = np.where(span > 0, height * (b - a) / np.where(span > 0, span, 1), height)
    inside = (a + b) / 2 - position
    pixel = base + position
    here = np.bincount(pixel, weights=height * (1 - inside), minlength=total)
    beyond = np.bincount(pixel + 1, weights=height * inside, minlength=total)
    return np.asarray(here + beyond, dtype=np.float64)


def _expand_ranges(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return the index i and the value of each element of the ranges first[i], ..., first[i] + count[i] - 1."""
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
