"""Boxes drawn to the ink: what the network places to a fraction of a pixel, the page itself places exactly.

The network sees the page at half the usual size, and a stem is one of its pixels wide: half a pixel off is half of the
box. Two kinds of objects can be traced on the page as it was given. Those that touch nothing end where their ink ends.
Lines that cross others, stems and ledger lines, are wherever nearly all of their length is ink, if they were ruled: the
stem of a hand leans, and is wider than any column of ink. What is neither is left as the network placed it, and so are
pages whose staff lines are not solid, such as blurred photographs: their thin strokes are not whole either.
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
MAX_SKEW = 0.1  # degrees
MIN_SOLIDITY = 0.98  # share of the staff lines that is ink
_REACH = 0.15  # interlines by which the edge of an object may be moved...
_REACH_FRACTION = 0.06  # ...or of its side, where that is more: the ends of a slur are less certain than those of a dot
_MAX_REACH = 1.0  # interlines by which it may be moved at most
# Shares of a line's length: at either end, what is not looked at; of the rest, what is ink at least. Heads and beams
# hold the ends of a stem. A head hides the middle of a ledger line, which only its ends tell from the head.
_STEM = (0.1, 0.75)
_LEDGER = (0.02, 0.85)
_MIN_RULED_WIDTH = (
    0.7  # of the width that the network saw; columns of ink in half of all stems have more, if they were ruled
)
_MIN_COMPONENT_AREA = 0.02  # squared interlines: less ink is dirt
_MIN_LINE_LENGTH, _MAX_LINE_THICKNESS = (
    3.0,
    0.3,
)  # interlines: of a staff line, its least length and more than its thickness


def refine_boxes(page: GrayImage, found: Detections, interline: float, angle: float = 0.0) -> Detections:
    """Moves the edges of boxes to where the ink of their objects ends.

    Args:
        page: grey, dark ink on light paper, shape (h, w).
        found: in pixels of the page.
        interline: pixels between staff lines.
        angle: degrees by which the page lies askew; on a page that is not straight lines cannot be told by columns.

    Returns:
        The same objects; boxes that could be traced are at whole pixels. Costs a few passes over the
        page.
    """
    ink = ink_mask(page, interline)
    if len(found) == 0 or line_solidity(page, ink, interline) < MIN_SOLIDITY:
        return found
    boxes = found.boxes.numpy().astype(np.float32, copy=True)
    names = np.array(found.names)
    upright, level = np.isin(names, VERTICAL), np.isin(names, HORIZONTAL)
    others = ~(upright | level)
    if abs(angle) <= MAX_SKEW:
        stems = refine_lines(ink, boxes[upright], interline, *_STEM)
        if are_ruled(boxes[upright], stems):
            boxes[upright] = stems
            boxes[level] = refine_lines(ink.T, boxes[level][:, [1, 0, 3, 2]], interline, *_LEDGER)[:, [1, 0, 3, 2]]
        boxes[others] = refine_components(remove_staff_lines(ink, interline), boxes[others], interline)
    boxes[others] = refine_components(ink, boxes[others], interline)
    return replace(found, boxes=torch.from_numpy(boxes))


def ink_mask(page: GrayImage, interline: float) -> Mask:
    """Which pixels are more ink than paper, however the light falls, shape (h, w)."""
    height, width = page.shape
    factor = max(1, round(interline / 4))
    small = cv2.resize(page, (max(1, width // factor), max(1, height // factor)), interpolation=cv2.INTER_AREA)
    around = 2 * 6 + 1  # three interlines: paper shows somewhere in there, whatever is printed
    paper = cv2.blur(cv2.dilate(small, np.ones((around, around), np.uint8)), (around, around))
    darkest = float(np.percentile(small / np.maximum(paper, 1), 1))
    half = np.clip(paper * (1 + darkest) / 2, 0, 255).astype(np.uint8)
    return np.asarray(page < cv2.resize(half, (width, height), interpolation=cv2.INTER_LINEAR))


def line_solidity(page: GrayImage, ink: Mask, interline: float) -> float:
    """The share of long level lines, found by any contrast they have, that is ink or next to ink above or below."""
    lines = _opened(staff_ink(page), 1, max(3, round(_MIN_LINE_LENGTH * interline)))
    near = np.asarray(cv2.dilate(ink.astype(np.uint8), np.ones((3, 1), np.uint8))) > 0
    return float((lines & near).sum() / max(1, int(lines.sum())))


def remove_staff_lines(ink: Mask, interline: float) -> Mask:
    """The ink without long thin level lines, so that what stands on a staff falls into pieces of its own."""
    long = _opened(ink, 1, max(3, round(_MIN_LINE_LENGTH * interline)))
    thick = _opened(ink, max(2, round(_MAX_LINE_THICKNESS * interline)), 1)
    return ink & ~(long & ~thick)


def _opened(ink: Mask, rows: int, columns: int) -> Mask:
    """The parts of the ink into which a block of so many rows and columns fits."""
    return np.asarray(cv2.morphologyEx(ink.astype(np.uint8), cv2.MORPH_OPEN, np.ones((rows, columns), np.uint8))) > 0


def refine_lines(ink: Mask, boxes: Boxes, interline: float, ends: float, along: float) -> Boxes:
    """Left and right edges of upright lines, where the columns begin and end that are ink nearly all along.

    Args:
        ink: shape (h, w).
        boxes: shape (n, 4).
        interline: pixels between staff lines.
        ends: share of a line's length at either end that is not looked at.
        along: share of the rest that is ink at least.

    Returns:
        The boxes; those without such a column near them are as they were.
    """
    if len(boxes) == 0:
        return boxes
    height, width = ink.shape
    down = np.vstack([np.zeros((1, width), np.int32), np.cumsum(ink, axis=0, dtype=np.int32)])  # (h + 1, w)
    length = boxes[:, 3] - boxes[:, 1]
    top = np.clip(np.round(boxes[:, 1] + ends * length), 0, height).astype(np.int64)
    bottom = np.clip(np.round(boxes[:, 3] - ends * length), 0, height).astype(np.int64)
    reach = max(2, round(_REACH * interline))
    columns = 2 * reach + round(float((boxes[:, 2] - boxes[:, 0]).max())) + 1
    first = np.round(boxes[:, 0]).astype(np.int64) - reach
    at = first[:, None] + np.arange(columns)  # (n, columns)
    inside = (at >= 0) & (at < width) & (at < np.round(boxes[:, 2]).astype(np.int64)[:, None] + reach)
    safe = np.clip(at, 0, width - 1)
    rows = np.maximum(bottom - top, 1)[:, None]
    on = inside & ((down[bottom[:, None], safe] - down[top[:, None], safe]) >= along * rows)
    middle = (boxes[:, [0]] + boxes[:, [2]]) / 2
    nearest = np.abs(np.where(on, at + 0.5 - middle, np.inf)).argmin(axis=1)  # (n,)
    refined = boxes.copy()
    for row in np.flatnonzero(on.any(axis=1)):
        left = right = int(nearest[row])
        while left > 0 and on[row, left - 1]:
            left -= 1
        while right + 1 < columns and on[row, right + 1]:
            right += 1
        refined[row, 0], refined[row, 2] = at[row, left], at[row, right] + 1
    return refined


def are_ruled(seen: Boxes, refined: Boxes) -> bool:
    """Whether upright lines are as wide as the network saw them when they are traced, or thinner, since they lean.

    Args:
        seen: as the network placed them, shape (n, 4).
        traced: the same as `refine_lines` found them; if there are none, nothing speaks against a ruler.
    """
    widths = refined[:, 2] - refined[:, 0], np.maximum(seen[:, 2] - seen[:, 0], 1e-6)
    return len(seen) == 0 or float(np.median(widths[0] / widths[1])) >= _MIN_RULED_WIDTH


def refine_components(ink: Mask, boxes: Boxes, interline: float) -> Boxes:
    """The bounds of all pieces of ink that lie within a box, if they are nearly its own.

    An object that touches a staff line is no piece of its own: the piece is larger than the box, and does not count.

    Args:
        ink: shape (h, w).
        boxes: shape (n, 4).
        interline: pixels between staff lines.

    Returns:
        The boxes; those without pieces that fill them are as they were.
    """
    _, _, facts, centres = cv2.connectedComponentsWithStats(ink.astype(np.uint8), connectivity=8)
    left, top, wide, high, area = facts[1:].T  # the first is the paper
    indices = np.flatnonzero(area >= max(1.0, _MIN_COMPONENT_AREA * interline**2))
    order = indices[np.argsort(centres[1:][indices, 0], kind="stable")]  # from left to right
    pieces = np.stack([left, top, left + wide, top + high], axis=1).astype(np.float32)[order]  # (m, 4)
    middles = centres[1:][order].astype(np.float32)  # (m, 2)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)  # (n, 4)
    reach = np.clip(_REACH_FRACTION * sides, max(2.0, _REACH * interline), _MAX_REACH * interline)
    box, piece = _box_component_pairs(boxes, middles[:, 0])
    outer = boxes + reach * np.array([-1, -1, 1, 1], dtype=np.float32)
    within = (pieces[piece, :2] >= outer[box, :2]).all(axis=1) & (pieces[piece, 2:] <= outer[box, 2:]).all(axis=1)
    within &= (middles[piece, 1] >= boxes[box, 1]) & (middles[piece, 1] <= boxes[box, 3])
    box, piece = box[within], piece[within]
    bounds = np.tile(np.array([np.inf, np.inf, -np.inf, -np.inf], dtype=np.float32), (len(boxes), 1))
    np.minimum.at(bounds[:, :2], box, pieces[piece, :2])
    np.maximum.at(bounds[:, 2:], box, pieces[piece, 2:])
    near = (np.abs(bounds - boxes) <= reach).all(axis=1)
    return np.where(near[:, None], bounds, boxes).astype(np.float32)


def _box_component_pairs(boxes: Boxes, across: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Boxes and pieces of ink whose middle lies between the sides of the box; places of middles are ascending."""
    first = np.searchsorted(across, boxes[:, 0], side="left")
    last = np.searchsorted(across, boxes[:, 2], side="right")
    sizes = np.maximum(last - first, 0)
    box = np.repeat(np.arange(len(boxes)), sizes)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return box, first[box] + within
