"""Data types of the layout of a page: staves with the course of their lines, bar lines, systems, measures.

All coordinates are pixels of a page whose staff lines are `INTERLINE` pixels apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect.options import INTERLINE

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
BarStyle = Literal["regular", "double", "final", "start-repeat", "end-repeat", "both-repeat", "dashed"]


@dataclass(frozen=True)
class StaffLines:
    """A staff: the course of its middle line, from left to right.

    Attributes:
        x: positions at which the staff was traced, shape (k,), ascending.
        middle: y coordinates of the middle line there, shape (k,).
        spacing: mean distance between its lines.
        stretch: by which fraction the distance of ledger lines is larger.
    """

    x: Floats
    middle: Floats
    spacing: float = INTERLINE
    stretch: float = 0.0

    @property
    def left(self) -> float:
        """Left end of the lines."""
        return float(self.x[0])

    @property
    def right(self) -> float:
        """Right end of the lines."""
        return float(self.x[-1])

    def y(self, x: float) -> float:
        """Return the y coordinate of the middle line at `x`; outside the staff, that of the nearest end."""
        return float(np.interp(x, self.x, self.middle))

    def top(self, x: float) -> float:
        """Return the y coordinate of the top line at `x`."""
        return self.y(x) - 2 * self.spacing

    def bottom(self, x: float) -> float:
        """Return the y coordinate of the bottom line at `x`."""
        return self.y(x) + 2 * self.spacing

    def position(self, x: float, y: float) -> float:
        """Return how many steps a point is above the middle line; a step is half of the distance between lines."""
        steps = (self.y(x) - y) / (self.spacing / 2)
        beyond = abs(steps) - 4
        return float(steps if beyond <= 0 else np.copysign(4 + beyond / (1 + self.stretch), steps))


@dataclass(frozen=True)
class BarLine:
    """A bar line of a system.

    Attributes:
        x: its position: the middle of its strokes.
        style: kind of bar line.
        left, right: extent of its strokes and repeat dots.
    """

    x: float
    style: BarStyle
    left: float
    right: float


@dataclass
class System:
    """Staves that are played together.

    Attributes:
        staves: from top to bottom.
        bars: bar lines from left to right, without the line that joins the staves at the left end.
        groups: staves of one part, such as (1, 2) for a piano below a voice; each staff occurs once.
    """

    staves: list[StaffLines]
    bars: list[BarLine] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Left end of the staves."""
        return min(staff.left for staff in self.staves)

    @property
    def right(self) -> float:
        """Right end of the staves."""
        return max(staff.right for staff in self.staves)

    def distance(self, x: float, y: float) -> float:
        """Return the vertical distance of a point to the staves; 0 between the outer lines."""
        return max(self.staves[0].top(x) - y, y - self.staves[-1].bottom(x), 0.0)

    def spans(self) -> list[tuple[float, float]]:
        """Return the left and right end of each measure, from left to right.

        A measure without a bar line at its right end, such as the last of a line that is cut off, is included if it is
        wide enough to hold notes.
        """
        ends = [bar.x for bar in self.bars]
        if not ends or self.right - ends[-1] > 3 * INTERLINE:
            ends.append(self.right)
        starts = [self.left, *ends[:-1]]
        return list(zip(starts, ends, strict=True))


@dataclass
class Layout:
    """The systems of a page from top to bottom.

    Attributes:
        systems: the systems.
        ink: ink of the page, shape (h, w).
    """

    systems: list[System]
    ink: Mask
