"""Lines that should be vertical and lean, as on a page photographed at an angle, and a page on which they do not.

The left ends of the staves of a system lie on one vertical line, and so do the right ends. Rows of the page are shifted
and stretched along themselves until they do: simultaneous notes are then one above the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.layout.systems import System

Floats = NDArray[np.float64]

_MIN_LEAN = 0.012  # pixels per row, below which simultaneous notes are well enough aligned
_MAX_LEAN = 0.2
_MAX_STEP = 4.0 * INTERLINE  # between the ends of neighbouring staves of a system
_MIN_PAIRS = 2
_ITERATIONS = 4  # of the inverse, which converges quickly, because leans are small


@dataclass(frozen=True)
class Lean:
    """Pixels by which lines move to the right for each row downwards: `offset` at column `x`, row `y` of a page.

    Attributes:
        left, right: lean at the columns `x0` and `x1`.
        x0, x1: columns.
        y: row that is not moved.
    """

    left: float
    right: float
    x0: float
    x1: float
    y: float

    def offset(self, x: Floats, y: Floats) -> Floats:
        """Return by how much points of the page without lean are to the right on the page."""
        share = np.clip((x - self.x0) / max(self.x1 - self.x0, 1.0), -0.5, 1.5)
        return (self.left + share * (self.right - self.left)) * (y - self.y)

    def image(self, image: GrayImage, zoom: float = 1.0) -> GrayImage:
        """Return a page without its lean, of the same shape.

        Args:
            image: grayscale, shape (h, w).
            zoom: its pixels per pixel in which the lean was measured.
        """
        rows, columns = np.arange(image.shape[0]) / zoom, np.arange(image.shape[1]) / zoom
        source = columns[None, :] + self.offset(columns[None, :], rows[:, None])
        y = np.repeat(np.arange(image.shape[0], dtype=np.float32)[:, None], image.shape[1], axis=1)
        paper = float(np.median(image))
        warped = cv2.remap(image, (source * zoom).astype(np.float32), y, cv2.INTER_LINEAR, borderValue=paper)
        return np.asarray(warped, dtype=np.uint8)

    def symbols(self, symbols: Detections) -> Detections:
        """Return the symbols of a page on the page without its lean; they are moved, and keep their sizes."""
        boxes = symbols.boxes.double().numpy()
        x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
        straight = x.copy()
        for _ in range(_ITERATIONS):
            straight = x - self.offset(straight, y)
        return replace(symbols, boxes=torch.from_numpy(_moved(boxes, straight - x)).float())

    def invert(self, boxes: Floats) -> Floats:
        """Return boxes on the page without lean as boxes on the page, shape (n, 4)."""
        x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
        return _moved(boxes, self.offset(x, y))


def _moved(boxes: Floats, dx: Floats) -> Floats:
    moved = boxes.copy()
    moved[:, 0] += dx
    moved[:, 2] += dx
    return moved


def find_lean(systems: Sequence[System], height: int) -> Lean | None:
    """Return the lean of a page, measured at the ends of the staves of its systems.

    Args:
        systems: systems of the page.
        height: height of the page.

    Returns:
        The lean; None if it is small, or if fewer than two pairs of staves show it.
    """
    pairs = [pair for system in systems for pair in pairwise(system.staves)]
    left: list[float] = []
    right: list[float] = []
    for above, below in pairs:
        for slopes, a, b in ((left, above.left, below.left), (right, above.right, below.right)):
            rise = below.y(b) - above.y(a)
            if abs(b - a) < _MAX_STEP and rise > 0:
                slopes.append((b - a) / rise)
    if min(len(left), len(right)) < _MIN_PAIRS:
        return None
    leans = [float(np.clip(np.median(slopes), -_MAX_LEAN, _MAX_LEAN)) for slopes in (left, right)]
    if max(map(abs, leans)) < _MIN_LEAN:
        return None
    x0, x1 = (float(np.median([getattr(s, end) for pair in pairs for s in pair])) for end in ("left", "right"))
    return Lean(leans[0], leans[1], x0, x1, height / 2)
