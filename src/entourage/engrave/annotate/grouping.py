"""Symbols that depend on other symbols: combined dynamics, time signatures and grace notes; staves and ledger lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from entourage.engrave.annotate.barlines import vertical_extent
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Mark, Symbol
from entourage.symbols import split_dynamics

LETTERS = {0xE520: "p", 0xE521: "m", 0xE522: "f", 0xE523: "r", 0xE524: "s", 0xE525: "z"}


def combine_dynamics(symbols: Sequence[Symbol], marks: Sequence[Mark]) -> list[Symbol]:
    """Combine the letters of each dynamic to one symbol of V1, or to several if V1 has no class for the dynamic."""
    letters_by_group: dict[Group, list[Symbol]] = {}
    for symbol in symbols:
        if symbol.group.kind == "dynam" and marks[symbol.marks[0]].code in LETTERS:
            letters_by_group.setdefault(symbol.group, []).append(symbol)
    combined = []
    for group, letters in letters_by_group.items():
        text = "".join(LETTERS[marks[symbol.marks[0]].code] for symbol in letters)
        for name, span in split_dynamics(text):
            indices = [i for symbol in letters[span] for i in symbol.marks]
            combined.append(Symbol("", name, indices, group))
    return combined


def combine_times(symbols: Sequence[Symbol], marks: Sequence[Mark]) -> list[Symbol]:
    """Combine the digits of 12 and 16 in time signatures: V1 has a class for each number instead of its digits."""
    digits = [s for s in symbols if s.label.startswith("timeSig") and s.group.kind == "meterSig"]
    combined = []
    for first, second in pairwise(digits):
        pair = first.label[-1] + second.label[-1]
        same_row = abs(marks[first.marks[0]].y - marks[second.marks[0]].y) < 1
        if first.group is second.group and pair in ("12", "16") and same_row:
            first.v1 = second.v1 = ""
            combined.append(Symbol("", f"timeSig{pair}", [*first.marks, *second.marks], first.group))
    return combined


def combine_graces(graces: Mapping[Group, list[int]], marks: Sequence[Mark]) -> list[Symbol]:
    """Return an additional symbol for each grace note with a flag: its head, stem, flag and stroke combined.

    Args:
        graces: indices of the marks of each grace note or chord.
        marks: all marks of the page.

    Returns:
        The additional symbols.
    """
    combined = []
    for group, indices in graces.items():
        flags = [i for i in indices if marks[i].group.kind == "flag"]
        if not flags:
            continue
        lines = [marks[i].points for i in indices if marks[i].shape == "line"]
        stroke = any(abs(line[0, 0] - line[-1, 0]) > 1 for line in lines)  # a stem is vertical
        name = "Acciaccatura" if stroke else "Appoggiatura"
        label = f"graceNote{name}Stem{'Up' if marks[flags[0]].code % 2 == 0 else 'Down'}"
        combined.append(Symbol(label, label, indices, group))
    return combined


StaffKey = tuple[Group | None, int]  # a measure, and the number of a staff in it


class Staves:
    """The staff lines of a page by measure.

    Args:
        marks: marks of the page.
        events: musical events by id.
        interline: pixels between staff lines, for staves of a single line.
    """

    def __init__(self, marks: Iterable[Mark], events: Mapping[str, Event], interline: float) -> None:
        self.events = events
        self.interline = interline
        self._lines: dict[StaffKey, list[float]] = {}
        self._tops: dict[Group | None, dict[int, float]] = {}  # y of the highest line of each staff, by system
        for mark in marks:
            if mark.shape == "line" and mark.group.kind == "staff":
                key = self.staff_key(mark.group)
                self._lines.setdefault(key, []).append(mark.y)
                tops = self._tops.setdefault(mark.group.closest("system"), {})
                tops[key[1]] = min(tops.get(key[1], mark.y), mark.y)

    def staff_key(self, staff: Group | None) -> StaffKey:
        """Return the measure that contains a staff, and the number of the staff in it."""
        if staff is None:
            return None, 0
        event = self.events.get(staff.id)
        return staff.closest("measure"), event.staff if event else 0

    def number(self, mark: Mark) -> int:
        """Return the number, from 1, of the staff that a mark belongs to; 0 if it belongs to none."""
        return self.staff_key(mark.group.closest("staff"))[1]

    def highest(self, symbol: Symbol, marks: Sequence[Mark]) -> int:
        """Return the number of the staff at the top of a symbol that may span several, or 0."""
        top = min(vertical_extent(marks[i])[0] for i in symbol.marks)
        tops = self._tops.get(symbol.group.closest("system"), {})
        return min(tops, key=lambda number: abs(tops[number] - top), default=0)

    def position(self, mark: Mark, number: int) -> tuple[int, int]:
        """Return how many steps a mark is above the middle of staff `number`, and how many lines the staff has."""
        lines = self._lines.get((mark.group.closest("measure"), number))
        if not lines:  # the measure has no staff of this number: use that of the mark
            lines = self._lines.get(self.staff_key(mark.group.closest("staff")))
        if not lines:
            return 0, 5
        middle = (min(lines) + max(lines)) / 2
        half = (max(lines) - min(lines)) / (len(lines) - 1) / 2 if len(lines) > 1 else self.interline / 2
        return round((middle - mark.y) / (half or self.interline / 2)), len(lines)


def attach_ledgers(
    symbols: Iterable[Symbol],
    marks: Sequence[Mark],
    staves: Staves,
    events: Mapping[str, Event],
    ids: Collection[str],
) -> None:
    """Assign notes, onset and element to ledger lines, which the engraver draws per staff and without their notes.

    The notes of a line are those whose heads are on it, or beyond it at the same horizontal position. Notes of a chord
    share the lines nearest to the staff, so a line may have several notes. The nearest note is first; it determines
    onset and element. Lines of rests and of hidden notes have no notes.

    Args:
        symbols: symbols of the page, modified in place; noteheads have staff and position.
        marks: marks of the page.
        staves: staff lines of the page.
        events: musical events by id.
        ids: ids of the elements of the score.
    """
    heads: dict[StaffKey, list[Symbol]] = {}
    lines = []
    for symbol in symbols:
        if symbol.label == "legerLine":
            lines.append(symbol)
        elif symbol.group.kind == "notehead":
            heads.setdefault((symbol.group.closest("measure"), symbol.staff), []).append(symbol)
    for line in lines:
        mark = marks[line.marks[0]]
        line.staff = staves.number(mark)
        position, _ = staves.position(mark, line.staff)
        candidates = heads.get((line.group.closest("measure"), line.staff), [])
        attached = [head for head in candidates if _is_beyond(head, position) and _crosses(mark, marks[head.marks[0]])]
        attached.sort(key=lambda head: abs((head.position or 0) - position))
        line.notes = tuple(note.id for head in attached if (note := head.group.closest("note")))
        line.element = next((note for note in line.notes if note in ids), "")
        event = events.get(line.notes[0]) if line.notes else None
        if event and event.onset is not None:
            line.onset, line.voice = float(event.onset), event.voice


def _is_beyond(head: Symbol, line: int) -> bool:
    position = head.position or 0
    return position >= line if line > 0 else position <= line


def _crosses(line: Mark, head: Mark) -> bool:
    """Return whether the horizontal centre of a notehead is within the extent of the line."""
    middle = (head.edges[:, 0].min() + head.edges[:, 0].max()) / 2
    return bool(line.points[:, 0].min() <= middle <= line.points[:, 0].max())
