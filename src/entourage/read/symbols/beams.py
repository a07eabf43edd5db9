"""Number of beams of each stem, measured in the ink next to its free end.

The boxes of beams that lie one above the other overlap, so that their number cannot be determined from boxes. The ink
is used at the resolution of the input page, because thick beams merge at `INTERLINE` pixels between staff lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect.options import INTERLINE

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_BEAMS = 5
_BEAM, _GAP = 5.0, 2.5  # thickness of beams and distance between them, unless the page shows others
_THINNEST, _THICKEST = 3.2, 9.4  # range of the thickness of one beam
_WIDEST_GAP = 5.0
_MIN_FRACTION = 0.55  # of the thickness of a beam: a thinner run is a staff line or a slur
_MIN_RUNS = 20  # that the page must show before they are measured
_OFFSETS = (4.0, 5.0, 6.0)  # distances from the stem at which beams are measured
BOX_REACH = 10.0  # pixels between the end of the box of a beam and its outermost stem
_MIN_SIDE = 5.0  # by which the box of a beam extends beyond a stem on a side with beams
_SLOPE = 6  # pixels by which a beam may lie beyond the end of the stem there
_MAX_SPACE = 7.0  # between beams; a run farther away is a slur or a notehead


@dataclass(frozen=True)
class BeamInk:
    """Ink in which beams are measured. Lengths are in pixels of the layout, `INTERLINE` between staff lines.

    Attributes:
        ink: ink of the page at its own resolution, shape (h, w).
        zoom: its pixels per pixel of the layout.
        thickness: thickness of the beams of the page; old prints have thick ones.
        gap: distance between them.
    """

    ink: Mask
    zoom: float = 1.0
    thickness: float = _BEAM
    gap: float = _GAP

    def levels(self, height: float) -> int:
        """Return the number of beams in a run of ink, which may join several."""
        if height < _MIN_FRACTION * self.thickness:
            return 0
        return max(1, round((height + self.gap) / (self.thickness + self.gap)))

    def count(
        self, x: float, end: float, direction: Literal["up", "down"], heads: Sequence[float], beams: Floats
    ) -> tuple[int, int]:
        """Return the number of beams to the left and right of the free end of a stem.

        Args:
            x: column of the stem.
            end: its free end.
            direction: direction of the stem.
            heads: y coordinates of its heads.
            beams: boxes of the detected beams, shape (n, 4); without a box near the end, there are no beams.
        """
        if len(beams) == 0:
            return 0, 0
        near = (beams[:, 0] - BOX_REACH < x) & (beams[:, 2] + BOX_REACH > x)
        near &= (beams[:, 1] - 0.8 * INTERLINE < end) & (beams[:, 3] + 0.8 * INTERLINE > end)
        if not near.any():
            return 0, 0
        toward = 1 if direction == "up" else -1
        nearest = min((abs(y - end) for y in heads), default=4 * INTERLINE)
        length = min(nearest - 0.35 * INTERLINE, MAX_BEAMS * (self.thickness + self.gap) + 2)
        left = [self._runs(x - dx, end, toward, length) for dx in _OFFSETS]
        right = [self._runs(x + dx, end, toward, length) for dx in _OFFSETS]
        from_left, to_right = (beams[near, 0] < x - _MIN_SIDE).any(), (beams[near, 2] > x + _MIN_SIDE).any()
        return int(np.median(left)) if from_left else 0, int(np.median(right)) if to_right else 0

    def _runs(self, x: float, end: float, toward: int, length: float) -> int:
        """Count the beams in a column, from the free end of a stem toward its heads."""
        column, start = int(np.clip(round(x * self.zoom), 0, self.ink.shape[1] - 1)), round(end * self.zoom)
        margin = round(_SLOPE * self.zoom)
        rows = np.arange(start - toward * margin, start + toward * max(round(length * self.zoom), 1), toward)
        rows = rows[(rows >= 0) & (rows < self.ink.shape[0])]
        count, last_end = 0, float(margin)
        for first, last in runs_of(self.ink[rows, column]):
            levels = self.levels((last - first) / self.zoom)
            if levels == 0:
                continue
            if first - last_end > _MAX_SPACE * self.zoom:
                break
            count += levels
            last_end = last
        return min(count, MAX_BEAMS)


def runs_of(values: Mask) -> list[tuple[int, int]]:
    """Return the start and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], values.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def measure_beams(ink: Mask, boxes: Iterable[Floats], zoom: float = 1.0) -> BeamInk:
    """Measure the thickness of beams and their gaps in the ink of detected beams.

    Args:
        ink: ink of the page, shape (h, w).
        boxes: boxes of beams in pixels of the layout.
        zoom: pixels of the ink per pixel of the layout.

    Returns:
        The ink with the medians over the page; with defaults where there are too few beams.
    """
    heights: list[float] = []
    gaps: list[float] = []
    reach = 2 * INTERLINE
    for x0, y0, x1, y1 in boxes:
        for fraction in (0.3, 0.5, 0.7):
            column = min(int((x0 + fraction * (x1 - x0)) * zoom), ink.shape[1] - 1)
            strip = ink[max(0, int((y0 - reach) * zoom)) : int((y1 + reach) * zoom), column]
            runs = [(a / zoom, b / zoom) for a, b in runs_of(strip) if b - a >= _THINNEST * zoom]
            heights.extend(b - a for a, b in runs if b - a <= _THICKEST)
            gaps.extend(b[0] - a[1] for a, b in itertools.pairwise(runs) if b[0] - a[1] <= _WIDEST_GAP)
    thickness = float(np.median(heights)) if len(heights) >= _MIN_RUNS else _BEAM
    gap = float(np.median(gaps)) if len(gaps) >= _MIN_RUNS else _GAP
    return BeamInk(ink, zoom, thickness, gap)
