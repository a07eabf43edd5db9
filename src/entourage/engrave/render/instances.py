"""Symbols on a page, as they pass from the step that finds them to those that draw and write them."""

from __future__ import annotations

from dataclasses import dataclass, field

from entourage.engrave.render.marks import Group


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
class Related:
    """The symbols of a page, and the names of glyphs that no class covers, as often as they occur.

    A glyph is called by its code point, such as "0xe56c"; LilyPond's have none and are called as it calls them.
    """

    symbols: list[Symbol]
    unlabelled: list[str] = field(default_factory=list)
