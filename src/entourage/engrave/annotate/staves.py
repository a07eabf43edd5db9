"""Where the lines of staves run, and how far above the middle of its staff a mark stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Mark

Place = tuple[Group | None, int]  # a measure, and the number of a staff in it


class Staves:
    """The staff lines of a page, measure by measure.

    Args:
        marks: what is drawn.
        events: what the music says, by id.
        interline: pixels between staff lines, for staves of a single line.
    """

    def __init__(self, marks: Iterable[Mark], events: Mapping[str, Event], interline: float) -> None:
        self.events = events
        self.interline = interline
        self._lines: dict[Place, list[float]] = {}
        for mark in marks:
            if mark.shape == "line" and mark.group.kind == "staff":
                self._lines.setdefault(self.place(mark.group), []).append(mark.y)

    def place(self, staff: Group | None) -> Place:
        """The measure and the number of a staff."""
        if staff is None:
            return None, 0
        event = self.events.get(staff.id)
        return staff.within("measure"), event.staff if event else 0

    def number(self, mark: Mark) -> int:
        """The number of the staff that a mark stands on, from 1; 0 if it stands on none."""
        return self.place(mark.group.within("staff"))[1]

    def position(self, mark: Mark, number: int) -> tuple[int, int]:
        """Steps above the middle of the staff of that number, and how many lines the staff has."""
        lines = self._lines.get((mark.group.within("measure"), number))
        if not lines:  # a number that does not occur here: the staff around the mark
            lines = self._lines.get(self.place(mark.group.within("staff")))
        if not lines:
            return 0, 5
        middle = (min(lines) + max(lines)) / 2
        half = (max(lines) - min(lines)) / (len(lines) - 1) / 2 if len(lines) > 1 else self.interline / 2
        return round((middle - mark.y) / (half or self.interline / 2)), len(lines)
