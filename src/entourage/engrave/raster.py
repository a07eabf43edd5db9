"""Exact coverage of pixels by polygons, for all shapes of a page in one vectorised pass.

Every shape is rasterised alone, into a small buffer of its own, so that one pass gives everything: the image is the
buffers laid over each other, an instance mask is one buffer, a bounding box is the extent of its ink. Nothing is drawn
twice, and boxes, masks and image cannot disagree.

The method is that of font rasterisers: each edge adds, to the pixels it crosses, the signed area between itself and the
right side of the pixel, and a running sum along the rows turns that into coverage. The result is the exact area of the
shape inside each pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.engrave.outlines import Edges

Ints = NDArray[np.int64]
_FARTHEST = 20_000.0  # pixels; what lies farther out is off any page, and must not cost memory


@dataclass(frozen=True)
class Ink:
    """The pixels that shapes touch, shape after shape.

    Attributes:
        x, y: the pixel, shape (n,); may lie off the page.
        coverage: the share of the pixel that is covered, in (0, 1], shape (n,).
        start: where each shape begins, shape (shapes + 1,).
    """

    x: Ints
    y: Ints
    coverage: NDArray[np.float32]
    start: Ints

    @property
    def shape_of(self) -> Ints:
        """The shape that each pixel belongs to, shape (n,)."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def rasterise(shapes: list[Edges]) -> Ink:
    """The coverage of all pixels by each of the shapes.

    Overlapping parts of one shape count once if they turn the same way; a hole turns the other way.

    Args:
        shapes: the edges of each, shape (n, 4), in pixels; pixel (i, j) is the square from (i, j) to (i + 1, j + 1).

    Returns:
        The ink. Costs O(pixels in the bounding boxes) time and memory.
    """
    sizes = np.array([len(edges) for edges in shapes], dtype=np.int64)
    full = np.flatnonzero(sizes)
    if len(full) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Ink(nothing, nothing, np.empty(0, dtype=np.float32), np.zeros(len(shapes) + 1, dtype=np.int64))
    edges = np.clip(np.concatenate([shapes[i] for i in full]), -_FARTHEST, _FARTHEST)
    first = np.cumsum(sizes[full]) - sizes[full]
    low = np.floor(np.minimum.reduceat(np.minimum(edges[:, :2], edges[:, 2:]), first))  # (full, 2)
    high = np.ceil(np.maximum.reduceat(np.maximum(edges[:, :2], edges[:, 2:]), first))
    width = (high[:, 0] - low[:, 0]).astype(np.int64) + 2  # the sum of a row reaches one pixel beyond its last edge
    area = width * np.maximum(high[:, 1] - low[:, 1], 1).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(area)])
    owner = np.repeat(np.arange(len(full)), sizes[full])
    edges = edges - low[:, [0, 1, 0, 1]][owner]
    covered = np.abs(np.cumsum(_accumulate(edges, width[owner], begin[owner], int(begin[-1]))))
    place = np.flatnonzero(covered > 1e-3)
    shape = np.searchsorted(begin, place, side="right") - 1
    local = place - begin[shape]
    row, column = np.divmod(local, width[shape])
    x = column + low[shape, 0].astype(np.int64)
    y = row + low[shape, 1].astype(np.int64)
    counts = np.zeros(len(shapes), dtype=np.int64)
    counts[full] = np.bincount(shape, minlength=len(full))
    start = np.concatenate([[0], np.cumsum(counts)])
    return Ink(x, y, np.minimum(covered[place], 1.0).astype(np.float32), start)


def _accumulate(edges: Edges, width: Ints, begin: Ints, total: int) -> NDArray[np.float64]:
    """The signed areas that edges leave in the buffers, shape (total,). Edges are relative to their buffer's corner."""
    x0, y0, x1, y1 = edges.T
    steep = y0 != y1
    down = y0 < y1
    sign = np.where(down, 1.0, -1.0)[steep]
    x0, y0, x1, y1 = (
        np.where(down, a, b)[steep] for a, b in ((x0, x1), (y0, y1), (x1, x0), (y1, y0))
    )  # now all run downwards
    width, begin = width[steep], begin[steep]
    slope = (x1 - x0) / (y1 - y0)
    # One piece for each row that an edge crosses...
    top = np.floor(y0).astype(np.int64)
    which, row = _spread(top, np.ceil(y1).astype(np.int64) - top)
    upper = np.maximum(y0[which], row)
    lower = np.minimum(y1[which], row + 1)
    xa = x0[which] + (upper - y0[which]) * slope[which]
    xb = x0[which] + (lower - y0[which]) * slope[which]
    height = (lower - upper) * sign[which]
    base = begin[which] + row * width[which]
    # ... and then one for each column.
    left, right = np.minimum(xa, xb), np.maximum(xa, xb)
    first = np.floor(left).astype(np.int64)
    which, column = _spread(first, np.maximum(np.ceil(right).astype(np.int64) - first, 1))
    left, right, height, base = left[which], right[which], height[which], base[which]
    a, b = np.maximum(left, column), np.minimum(right, column + 1)
    span = right - left
    height = np.where(span > 0, height * (b - a) / np.where(span > 0, span, 1), height)
    inside = (a + b) / 2 - column
    pixel = base + column
    here = np.bincount(pixel, weights=height * (1 - inside), minlength=total)
    beyond = np.bincount(pixel + 1, weights=height * inside, minlength=total)
    return np.asarray(here + beyond, dtype=np.float64)


def _spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """For each i the numbers first[i], first[i] + 1, ..., count[i] of them: which i, and the number."""
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
