"""Ink of a page, and the fraction of ink in columns of pixels.

All coordinates are pixels of a page whose staff lines are `INTERLINE` pixels apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.layout.systems import Floats, Mask, StaffLines

SPACE = round(INTERLINE)
STEP = 16  # pixels between the columns at which a staff is traced
_DARK = 0.5  # fraction of the page's contrast from which a pixel is ink


def binarize(image: GrayImage, zoom: float = 1.0) -> Mask:
    """Return the pixels that are nearer to the darkest ink than to the paper around them, shape (h, w).

    Args:
        image: grayscale, shape (h, w).
        zoom: distance between its staff lines, in units of `INTERLINE`.
    """
    import cv2

    window, grain = round(6 * SPACE * zoom) + 1, round(15 * zoom)
    paper = cv2.blur(cv2.dilate(image, np.ones((grain, grain), np.uint8)), (window, window)).astype(np.float32)
    darkest = float(np.percentile(image / np.maximum(paper, 1), 1))
    return np.asarray(image < paper * (_DARK + (1 - _DARK) * darkest))


def boxes_of(detections: Detections, accept: Callable[[str], bool], threshold: float) -> Floats:
    """Return the boxes of the accepted classes whose scores reach the threshold, shape (n, 4)."""
    names = detections.names
    accepted = np.array([accept(name) for name in names], dtype=np.bool_)
    boxes = detections.boxes.numpy()[accepted & (detections.scores.numpy() >= threshold)]
    return np.asarray(boxes, dtype=np.float64)


def gap_coverage(above: StaffLines, below: StaffLines, ink: Mask, x0: float, x1: float) -> Floats:
    """Return the fraction of ink between two staves in the columns from `x0` to `x1`; lines may lean by a pixel."""
    low, high = max(0, int(x0)), min(ink.shape[1], int(x1) + 1)
    if high <= low:
        return np.zeros(0)
    middle = (low + high) / 2
    top, bottom = round(above.bottom(middle)) + 2, round(below.top(middle)) - 1
    if bottom - top < 3:
        return np.zeros(high - low)
    return leaning_coverage(ink, low, high, top, bottom)


def leaning_coverage(ink: Mask, low: int, high: int, top: int, bottom: int) -> Floats:
    """Return the fraction of rows in which a column or one next to it is ink, for the columns low to high - 1."""
    first, last = max(0, low - 1), min(ink.shape[1], high + 1)
    part = ink[max(0, top) : max(0, bottom), first:last]
    wide = part.copy()
    wide[:, 1:] |= part[:, :-1]
    wide[:, :-1] |= part[:, 1:]
    return np.asarray(wide[:, low - first : low - first + high - low].mean(axis=0), dtype=np.float64)


def leaning_join(above: StaffLines, below: StaffLines, ink: Mask) -> float:
    """Return the fraction of ink on the best line between the left ends of two staves, whatever its direction.

    Args:
        above, below: neighbouring staves.
        ink: ink of the page, shape (h, w).

    Returns:
        The largest fraction of rows between the staves that have ink within a pixel of a line parallel to that between
        their left ends, at most a space away from them.
    """
    top, bottom = round(above.bottom(above.left)) + 2, round(below.top(below.left)) - 1
    rows = np.arange(max(0, top), min(bottom, ink.shape[0]))
    if len(rows) < 3:
        return 0.0
    course = np.interp(rows, [top, bottom], [above.left, below.left])
    best = 0.0
    for shift in range(-SPACE, SPACE + 1):
        columns = np.clip(np.round(course + shift).astype(np.int64), 1, ink.shape[1] - 2)
        hits = ink[rows, columns - 1] | ink[rows, columns] | ink[rows, columns + 1]
        best = max(best, float(hits.mean()))
    return best
