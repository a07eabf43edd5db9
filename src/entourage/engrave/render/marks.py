"""Data types of annotation and rendering: the marks that an engraver draws, their groups, and symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from entourage.engrave.render.outlines import Edges, Points, rotate_points
from entourage.symbols import EXTENDED_IDS


@dataclass(eq=False)
class Group:
    """A group of marks, such as a `<g>` of Verovio's SVG.

    Attributes:
        classes: classes of the group; the first is its kind.
        id: id of the group, or "".
        parent: the group around it, or None.
    """

    classes: tuple[str, ...] = ()
    id: str = ""
    parent: Group | None = None

    @property
    def kind(self) -> str:
        """Kind of the group: its first class, or ""."""
        return self.classes[0] if self.classes else ""

    def ancestors(self) -> Iterator[Group]:
        """Yield this group and the groups around it, from the inside out."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.parent

    def closest(self, *kinds: str) -> Group | None:
        """Return the first of `ancestors` that is of one of the kinds, or None."""
        return next((group for group in self.ancestors() if group.kind in kinds), None)


@dataclass(eq=False)
class Mark:
    """A shape that the engraver draws, such as a glyph or a line.

    Attributes:
        shape: "glyph", "line", "area" or "letter".
        edges: outline in pixels, shape (n, 4).
        group: the group of the mark.
        code: code point of a glyph or letter, else 0.
        scale: size of a glyph in pixels per em, else 0.
        x, y: origin of a glyph or letter; start of a line.
        points: points of a line, shape (n, 2); empty for other marks.
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
        """Rotate the mark clockwise around a point, like `rotate` in SVG."""
        self.edges = rotate_points(self.edges.reshape(-1, 2), degrees, x, y).reshape(-1, 4)
        self.points = rotate_points(self.points, degrees, x, y)
        ((self.x, self.y),) = rotate_points(np.array([[self.x, self.y]]), degrees, x, y)


@dataclass(eq=False)
class Symbol:
    """A symbol on a page, with its class and musical attributes.

    Attributes:
        label: class in the full list, or "" if only V1 has a class for it.
        v1: class in V1, or "".
        marks: indices of its marks.
        group: the engraver's group that contains it.
        element: id of its element in the score, or "".
        onset, duration: times in quarter notes, or None.
        staff: number of the staff, from 1 at the top of a system; 0 if it belongs to none. That of a bar line or of a
            bracket is its highest staff.
        measure: number of the measure in the score, from 1; 0 if it belongs to none.
        system: number of the system on the page, from 1; 0 if it belongs to none.
        voice: number of the voice on its staff, as in the score; 0 if it belongs to none.
        position: steps of a notehead or clef above (negative: below) the middle of the staff, or None.
        pitch, midi: name and MIDI number of the pitch of a notehead; "" and None for other symbols.
        notes: ids of the notes to which it belongs.
    """

    label: str
    v1: str
    marks: list[int]
    group: Group
    element: str = ""
    onset: float | None = None
    duration: float | None = None
    staff: int = 0
    measure: int = 0
    system: int = 0
    voice: int = 0
    position: int | None = None
    pitch: str = ""
    midi: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def extended(self) -> str:
        """Class in the extended list, or ""."""
        return self.label if self.label in EXTENDED_IDS else ""


@dataclass
class AnnotatedMarks:
    """The symbols that the marks of a page form.

    Attributes:
        symbols: the symbols.
        unlabelled: one name per glyph without a class: its code point, such as "0xe56c", or its name in LilyPond.
    """

    symbols: list[Symbol]
    unlabelled: list[str] = field(default_factory=list)
