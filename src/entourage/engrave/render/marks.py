"""What is drawn on a page, mark by mark, and the groups that marks stand in.

Symbols on a page, as they pass from the step that finds them to those that draw and write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from entourage.engrave.render.outlines import Edges, Points, rotate_points


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

    def ancestors(self) -> Iterator[Group]:
        """This group and those around it, from the inside out."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.parent

    def closest(self, *kinds: str) -> Group | None:
        """The nearest group of one of these kinds, this one included, or None."""
        return next((group for group in self.ancestors() if group.kind in kinds), None)


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

    def rotate(self, degrees: float, x: float, y: float) -> None:
        """Turns it clockwise around a point, as SVG's `rotate` does."""
        self.edges = rotate_points(self.edges.reshape(-1, 2), degrees, x, y).reshape(-1, 4)
        self.points = rotate_points(self.points, degrees, x, y)
        ((self.x, self.y),) = rotate_points(np.array([[self.x, self.y]]), degrees, x, y)


@dataclass(eq=False)
class Symbol:
    """A symbol on a page.

    Attributes:
        label: its class in the extended list, or nothing if only V1 knows it.
        v1: its class in V1, or nothing if V1 does not know it.
        marks: positions of the marks that it is made of.
        group: the engraver's group that it stands in.
        element: id of the element of the score that it comes from, or nothing.
        onset, duration: in quarter notes, or None.
        staff: the staff, from 1 at the top of a system; 0 if it belongs to none.
        position: of a notehead or clef: steps above (or, negative, below) the middle of the staff.
        pitch, midi: of a notehead.
        notes: ids of the notes that it belongs to.
    """

    label: str
    v1: str
    marks: list[int]
    group: Group
    element: str = ""
    onset: float | None = None
    duration: float | None = None
    staff: int = 0
    position: int | None = None
    pitch: str = ""
    midi: int | None = None
    notes: tuple[str, ...] = ()


@dataclass
class AnnotatedMarks:
    """The symbols of a page, and the names of glyphs that no class covers, as often as they occur.

    A glyph is called by its code point, such as "0xe56c"; LilyPond's have none and are called as it calls them.
    """

    symbols: list[Symbol]
    unlabelled: list[str] = field(default_factory=list)
