"""Refinement of boxes: edges are moved to the edges of the ink on the input page.

The network processes pages at about half their size, where a stem is one pixel wide: an error of half a pixel is half
of its box. Two kinds of objects are refined. Isolated objects end where their connected components of ink end. Stems
and ledger lines, which cross other symbols, consist of the columns or rows of pixels that are ink over nearly all of
their length. This requires straight lines: no column of pixels follows a handwritten stem, which leans. All other boxes
are unchanged, as are all boxes of pages whose staff lines are not solid, such as blurred photographs, where thin
strokes are broken, too.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.page_geometry import staff_ink
from entourage.detect.preprocessing.reading import GrayImage

Mask = NDArray[np.bool_]
Boxes = NDArray[np.float32]

VERTICAL = ("stem",)
HORIZONTAL = ("legerLine",)
MAX_SKEW = 0.1  # maximum skew, in degrees, of pages whose stems and ledger lines are refined
MIN_SOLIDITY = 0.98  # minimum fraction of the staff lines that is ink
_REACH = 0.15  # maximum distance, in interlines, by which an edge is moved ...
_REACH_FRACTION = 0.06  # ... or as a fraction of the box size, if that is more: ends of slurs are less precise
_MAX_REACH = 1.0  # upper bound of both distances, in interlines
# Fractions of a line's length: the part at each end that is ignored, and the minimum of ink in the remainder. Heads and
# beams cover the ends of a stem. A head covers the middle of a ledger line, whose ends distinguish it from the head.
_STEM = (0.1, 0.75)
_LEDGER = (0.02, 0.85)
_MIN_RULED_WIDTH = 0.7  # median of refined to predicted width; larger for ruled stems
_MIN_COMPONENT_AREA = 0.02  # squared interlines; smaller components are dirt
_MIN_LINE_LENGTH = 3.0  # interlines; staff lines are longer
_MAX_LINE_THICKNESS = 0.3  # interlines; staff lines are thinner


def refine_boxes(page: GrayImage, detections: Detections, interline: float, angle: float = 0.0) -> Detections:
    """Move the edges of detected boxes to the edges of the ink.

    Args:
        page: grayscale, dark ink on light paper, shape (h, w).
        detections: objects, in pixels of the page.
        interline: pixels between staff lines.
        angle: skew of the page in degrees; above `MAX_SKEW`, stems and ledger lines are not columns and rows of pixels
            and only isolated objects are refined.

    Returns:
        The same objects; refined edges lie at whole pixels. Costs a few passes over the page.
    """
    ink = ink_mask(page, interline)
    if len(detections) == 0 or line_solidity(page, ink, interline) < MIN_SOLIDITY:
        return detections
    boxes = detections.boxes.numpy().astype(np.float32, copy=True)
    names = np.array(detections.names)
    vertical, horizontal = np.isin(names, VERTICAL), np.isin(names, HORIZONTAL)
    others = ~(vertical | horizontal)
    if abs(angle) <= MAX_SKEW:
        stems = refine_lines(ink, boxes[vertical], interline, *_STEM)
        if are_ruled(boxes[vertical], stems):
            boxes[vertical] = stems
            transposed = boxes[horizontal][:, [1, 0, 3, 2]]
            boxes[horizontal] = refine_lines(ink.T, transposed, interline, *_LEDGER)[:, [1, 0, 3, 2]]
        boxes[others] = refine_components(remove_staff_lines(ink, interline), boxes[others], interline)
    boxes[others] = refine_components(ink, boxes[others], interline)
    return replace(detections, boxes=torch.from_numpy(boxes))


def ink_mask(page: GrayImage, interline: float) -> Mask:
    """Return the pixels darker than halfway between the local paper and the darkest ink, shape (h, w)."""
    height, width = page.shape
    factor = max(1, round(interline / 4))
    small = cv2.resize(page, (max(1, width // factor), max(1, height // factor)), interpolation=cv2.INTER_AREA)
    window = 2 * 6 + 1  # three interlines: every such window contains some paper
    paper = cv2.blur(cv2.dilate(small, np.ones((window, window), np.uint8)), (window, window))
    darkest = float(np.percentile(small / np.maximum(paper, 1), 1))
    half = np.clip(paper * (1 + darkest) / 2, 0, 255).astype(np.uint8)
    return np.asarray(page < cv2.resize(half, (width, height), interpolation=cv2.INTER_LINEAR))


def line_solidity(page: GrayImage, ink: Mask, interline: float) -> float:
    """Return the fraction of the pixels of long horizontal lines, faint or dark, that are within one row of ink."""
    lines = _open(staff_ink(page), 1, max(3, round(_MIN_LINE_LENGTH * interline)))
    near = np.asarray(cv2.dilate(ink.astype(np.uint8), np.ones((3, 1), np.uint8))) > 0
    return float((lines & near).sum() / max(1, int(lines.sum())))


def remove_staff_lines(ink: Mask, interline: float) -> Mask:
    """Return the ink without long thin horizontal lines, so that symbols on a staff are separate components."""
    long = _open(ink, 1, max(3, round(_MIN_LINE_LENGTH * interline)))
    thick = _open(ink, max(2, round(_MAX_LINE_THICKNESS * interline)), 1)
    return ink & ~(long & ~thick)


def _open(ink: Mask, rows: int, columns: int) -> Mask:
    """Return the morphological opening of the ink with a rectangle of `rows` x `columns` pixels."""
    return np.asarray(cv2.morphologyEx(ink.astype(np.uint8), cv2.MORPH_OPEN, np.ones((rows, columns), np.uint8))) > 0


def refine_lines(ink: Mask, boxes: Boxes, interline: float, ends: float, min_ink: float) -> Boxes:
    """Move the left and right edges of vertical lines to the bounds of the columns that are nearly all ink.

    Args:
        ink: shape (h, w).
        boxes: shape (n, 4).
        interline: pixels between staff lines.
        ends: fraction of a line's length at each end that is ignored.
        min_ink: minimum fraction of ink in the remainder of a column.

    Returns:
        Boxes, shape (n, 4); those without such a column nearby are unchanged.
    """
    if len(boxes) == 0:
        return boxes
    height, width = ink.shape
    total = cv2.integral(np.ascontiguousarray(ink, dtype=np.uint8))  # (h + 1, w + 1), ink above and to the left
    length = boxes[:, 3] - boxes[:, 1]
    top = np.clip(np.round(boxes[:, 1] + ends * length), 0, height).astype(np.int64)
    bottom = np.clip(np.round(boxes[:, 3] - ends * length), 0, height).astype(np.int64)
    reach = max(2, round(_REACH * interline))
    columns = 2 * reach + round(float((boxes[:, 2] - boxes[:, 0]).max())) + 1
    first = np.round(boxes[:, 0]).astype(np.int64) - reach
    x = first[:, None] + np.arange(columns)  # (n, columns)
    inside = (x >= 0) & (x < width) & (x < np.round(boxes[:, 2]).astype(np.int64)[:, None] + reach)
    clipped = np.clip(x, 0, width - 1)
    rows = np.maximum(bottom - top, 1)[:, None]
    low, high = total[top[:, None], clipped + 1], total[bottom[:, None], clipped + 1]
    low, high = low - total[top[:, None], clipped], high - total[bottom[:, None], clipped]
    solid = inside & (high - low >= min_ink * rows)
    middle = (boxes[:, [0]] + boxes[:, [2]]) / 2
    nearest = np.abs(np.where(solid, x + 0.5 - middle, np.inf)).argmin(axis=1)  # (n,)
    refined = boxes.copy()
    for row in np.flatnonzero(solid.any(axis=1)):
        left = right = int(nearest[row])
        while left > 0 and solid[row, left - 1]:
            left -= 1
        while right + 1 < columns and solid[row, right + 1]:
            right += 1
        refined[row, 0], refined[row, 2] = x[row, left], x[row, right] + 1
    return refined


def are_ruled(predicted: Boxes, refined: Boxes) -> bool:
    """Return whether vertical lines are printed or ruled: leaning ones become much thinner when refined.

    Args:
        predicted: boxes of the network, shape (n, 4).
        refined: the same boxes after `refine_lines`.

    Returns:
        Whether the median of refined to predicted width is large enough; True without any line.
    """
    widths = refined[:, 2] - refined[:, 0], np.maximum(predicted[:, 2] - predicted[:, 0], 1e-6)
    return len(predicted) == 0 or float(np.median(widths[0] / widths[1])) >= _MIN_RULED_WIDTH


def refine_components(ink: Mask, boxes: Boxes, interline: float) -> Boxes:
    """Move the edges of boxes to the bounds of the connected components inside, if these nearly fill the box.

    An object that touches a staff line belongs to a component larger than its box, which is ignored.

    Args:
        ink: shape (h, w).
        boxes: shape (n, 4).
        interline: pixels between staff lines.

    Returns:
        Boxes, shape (n, 4); those that no components fill are unchanged.
    """
    _, _, stats, centres = cv2.connectedComponentsWithStatsWithAlgorithm(  # this one takes half the time of the default
        ink.astype(np.uint8), 8, cv2.CV_32S, cv2.CCL_BBDT
    )
    left, top, width, height, area = stats[1:].T  # the first component is the paper
    indices = np.flatnonzero(area >= max(1.0, _MIN_COMPONENT_AREA * interline**2))
    order = indices[np.argsort(centres[1:][indices, 0], kind="stable")]  # from left to right
    parts = np.stack([left, top, left + width, top + height], axis=1).astype(np.float32)[order]  # (m, 4)
    middles = centres[1:][order].astype(np.float32)  # (m, 2)
    sizes = np.tile(boxes[:, 2:] - boxes[:, :2], 2)  # (n, 4)
    reach = np.clip(_REACH_FRACTION * sizes, max(2.0, _REACH * interline), _MAX_REACH * interline)
    box, part = _box_component_pairs(boxes, middles[:, 0])
    outer = boxes + reach * np.array([-1, -1, 1, 1], dtype=np.float32)
    within = (parts[part, :2] >= outer[box, :2]).all(axis=1) & (parts[part, 2:] <= outer[box, 2:]).all(axis=1)
    within &= (middles[part, 1] >= boxes[box, 1]) & (middles[part, 1] <= boxes[box, 3])
    box, part = box[within], part[within]
    bounds = np.tile(np.array([np.inf, np.inf, -np.inf, -np.inf], dtype=np.float32), (len(boxes), 1))
    np.minimum.at(bounds[:, :2], box, parts[part, :2])
    np.maximum.at(bounds[:, 2:], box, parts[part, 2:])
    near = (np.abs(bounds - boxes) <= reach).all(axis=1)
    return np.where(near[:, None], bounds, boxes).astype(np.float32)


def _box_component_pairs(boxes: Boxes, x: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of a box and a component whose centre is between its sides; `x`: centres, ascending."""
    first = np.searchsorted(x, boxes[:, 0], side="left")
    last = np.searchsorted(x, boxes[:, 2], side="right")
    sizes = np.maximum(last - first, 0)
    box = np.repeat(np.arange(len(boxes)), sizes)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return box, first[box] + within
