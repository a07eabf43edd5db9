"""What is drawn on a page, mark by mark, and the groups that marks stand in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from entourage.engrave.render.outlines import Edges, Points, turned


@dataclass(eq=False)
class Group:
    """A `<g>`: its classes (the first says what it is), its id and the group around it."""

    classes: tuple[str, ...] = ()
    id: str = ""
    parent: Group | None = None

    @property
    def kind(self) -> str:
        """The first class, or nothing."""
        return self.classes[0] if self.classes else ""

    def up(self) -> Iterator[Group]:
        """This group and those around it, from the inside out."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.parent

    def within(self, *kinds: str) -> Group | None:
        """The nearest group of one of these kinds, this one included, or None."""
        return next((group for group in self.up() if group.kind in kinds), None)


@dataclass(eq=False)
class Mark:
    """One thing drawn.

    Attributes:
        shape: "glyph", "line", "area" or "letter".
        edges: its outline in pixels, shape (n, 4).
        group: the group it stands in.
        code: the code point of a glyph or letter, else 0.
        scale: size of a glyph in pixels an em, else 0.
        x, y: origin of a glyph or letter; start of a line.
        points: of a line, shape (n, 2), else empty.
    """

    shape: str
    edges: Edges
    group: Group
    code: int = 0
    scale: float = 0.0
    x: float = 0.0
    y: float = 0.0
    points: Points = field(default_factory=lambda: np.empty((0, 2)))

    def turn(self, degrees: float, x: float, y: float) -> None:
        """Turns it clockwise around a point, as SVG's `rotate` does."""
        self.edges = turned(self.edges.reshape(-1, 2), degrees, x, y).reshape(-1, 4)
        self.points = turned(self.points, degrees, x, y)
        ((self.x, self.y),) = turned(np.array([[self.x, self.y]]), degrees, x, y)
