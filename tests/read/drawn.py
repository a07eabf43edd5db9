"""A drawn system of two staves with its symbols, for tests without a detector."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect import Detections

MIDDLES = (100, 200)  # rows of the middle lines
LEFT, RIGHT = 40, 640
BARS = (340, 638)


class Page:
    """A page of two staves joined by bar lines; lines are 10 pixels apart."""

    def __init__(self) -> None:
        self.image: NDArray[np.uint8] = np.full((300, 680), 255, dtype=np.uint8)
        self._symbols: list[tuple[str, tuple[float, float, float, float]]] = []
        for middle in MIDDLES:
            for k in range(-2, 3):
                self.image[middle + 10 * k, LEFT:RIGHT] = 0
            self.add("staff", LEFT, middle - 20, RIGHT, middle + 20)
        for x in (LEFT, *BARS):
            self.image[MIDDLES[0] - 20 : MIDDLES[1] + 21, x : x + 2] = 0

    def add(self, name: str, x0: float, y0: float, x1: float, y1: float) -> None:
        """Add a symbol without drawing it."""
        self._symbols.append((name, (x0, y0, x1, y1)))

    def clef(self, staff: int, name: str) -> None:
        """Add a clef at the beginning of a staff."""
        self.add(name, LEFT + 6, MIDDLES[staff] - 25, LEFT + 30, MIDDLES[staff] + 25)

    def note(self, staff: int, x: float, position: int, kind: str = "Black") -> None:
        """Draw a note with its stem upwards, `position` steps above the middle line."""
        y = MIDDLES[staff] - 5 * position
        self.image[y - 4 : y + 5, int(x) - 5 : int(x) + 6] = 0
        self.image[y - 35 : y, int(x) + 5 : int(x) + 7] = 0
        self.add(f"notehead{kind}{'InSpace' if position % 2 else 'OnLine'}", x - 6, y - 5, x + 7, y + 5)
        self.add("stem", x + 5, y - 35, x + 7, y)

    def detections(self) -> Detections:
        """Return the symbols with a score of 0.9."""
        names = tuple(sorted({name for name, _ in self._symbols}))
        boxes = torch.tensor([box for _, box in self._symbols], dtype=torch.float32)
        labels = torch.tensor([names.index(name) + 1 for name, _ in self._symbols])
        return Detections(boxes, labels, torch.full((len(labels),), 0.9), names)
