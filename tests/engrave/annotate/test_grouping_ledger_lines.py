from fractions import Fraction

import numpy as np
import pytest

from entourage.engrave.annotate.grouping import Staves, attach_ledgers
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Mark, Symbol
from entourage.engrave.render.outlines import rectangle

MEASURE = Group(("measure",), "m")
STAFF = Group(("staff",), "s", MEASURE)
OTHER = Group(("staff",), "t", MEASURE)
EVENTS = {"s": Event("staff", staff=1), "t": Event("staff", staff=2)}
EVENTS |= {name: Event("note", onset=Fraction(k)) for k, name in enumerate(("a", "b", "c", "d"), start=1)}
LINES = [(0.0, 20.0 * k, 1) for k in range(5)] + [(0.0, 300 + 20.0 * k, 2) for k in range(5)]


def staff_line(x: float, y: float, staff: int, length: float = 1000.0, kind: str = "staff") -> Mark:
    around = STAFF if staff == 1 else OTHER
    group = around if kind == "staff" else Group((kind,), "", around)
    return Mark("line", rectangle(x, y - 1, length, 2), group, x=x, y=y, points=np.array([[x, y], [x + length, y]]))


def attach(heads: dict[str, tuple[float, int, int]], *ledgers: tuple[float, float, int]) -> list[Symbol]:
    """Attach lines (centre x, y, staff) to heads (centre x, position, staff) and return the lines."""
    marks = [staff_line(x, y, staff) for x, y, staff in LINES]
    staves = Staves(marks, EVENTS, 20.0)
    symbols = []
    for name, (x, position, staff) in heads.items():
        group = Group(("notehead",), "", Group(("note",), name, STAFF if staff == 1 else OTHER))
        y = (40 if staff == 1 else 340) - 10 * position
        marks.append(Mark("glyph", rectangle(x - 12, y - 10, 24, 20), group, 0xE0A4, 80.0, x - 12, y))
        symbols.append(Symbol("noteheadBlackOnLine", "", [len(marks) - 1], group, staff=staff, position=position))
    lines = []
    for x, y, staff in ledgers:
        marks.append(staff_line(x - 18, y, staff, 36.0, "ledgerLines"))
        lines.append(Symbol("legerLine", "", [len(marks) - 1], marks[-1].group))
    attach_ledgers([*symbols, *lines], marks, staves, EVENTS, {"a", "b", "c"})
    return lines


@pytest.mark.parametrize(("position", "ys"), [(9, (-20.0, -40.0)), (8, (-20.0, -40.0)), (-8, (100.0, 120.0))])
def test_all_lines_up_to_a_head_belong_to_it(position: int, ys: tuple[float, float]) -> None:
    for line in attach({"a": (100, position, 1), "b": (400, 2 * position, 1)}, *[(100, y, 1) for y in ys]):
        assert (line.notes, line.element, line.onset, line.staff) == (("a",), "a", 1, 1)


def test_a_chord_shares_its_lines_and_the_nearest_head_comes_first() -> None:
    chord = {"c": (100.0, 10, 1), "b": (100.0, 8, 1), "a": (100.0, 2, 1)}
    inner, middle, outer = attach(chord, (100, -20, 1), (100, -40, 1), (100, -60, 1))
    assert (inner.notes, middle.notes, outer.notes) == (("b", "c"), ("b", "c"), ("c",))
    assert (inner.element, inner.onset, outer.element, outer.onset) == ("b", 2, "c", 3)


def test_heads_at_other_positions_or_on_another_staff_are_ignored() -> None:
    others = {"a": (100.0, -6, 2), "b": (140.0, -6, 1), "c": (100.0, 4, 1)}
    (line,) = attach(others, (100, 100, 1))
    assert (line.notes, line.element, line.onset) == ((), "", None)


def test_the_element_is_a_note_with_an_id_in_the_score() -> None:
    (line,) = attach({"d": (100, 6, 1), "a": (100, 8, 1)}, (100, -20, 1))
    assert (line.notes, line.element, line.onset) == (("d", "a"), "a", 4)
