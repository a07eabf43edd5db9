import numpy as np

from entourage.engrave.annotate.grouping import Staves
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Mark

MEASURE = Group(("measure",), "m1")
UPPER = Group(("staff",), "s1", MEASURE)
LOWER = Group(("staff",), "s2", MEASURE)
EVENTS = {"s1": Event("staff", staff=1), "s2": Event("staff", staff=2)}


def line(y: float, staff: Group) -> Mark:
    return Mark("line", np.empty((0, 4)), staff, y=y)


def head(y: float, around: Group | None) -> Mark:
    return Mark("glyph", np.empty((0, 4)), Group(("notehead",), parent=around), y=y)


def staves() -> Staves:
    return Staves([line(100 + 20 * k, UPPER) for k in range(5)] + [line(300, LOWER)], EVENTS, 20.0)


def test_positions_are_steps_above_the_middle() -> None:
    found = [staves().position(head(y, UPPER), 1)[0] for y in (140, 130, 100, 180, 200)]
    assert found == [0, 1, 4, -4, -6]
    assert staves().position(head(140, UPPER), 1)[1] == 5


def test_positions_on_a_single_line_are_relative_to_the_interline() -> None:
    assert staves().position(head(290, LOWER), 2) == (1, 1)


def test_a_mark_may_be_on_another_staff_than_its_group() -> None:
    assert staves().position(head(300, UPPER), 2) == (0, 1)
    assert staves().position(head(140, UPPER), 7) == (0, 5)  # no staff of that number: that of its group


def test_marks_on_no_staff_have_number_0() -> None:
    assert [staves().number(head(0, around)) for around in (UPPER, LOWER, None)] == [1, 2, 0]
    assert staves().position(head(50, None), 0) == (0, 5)
    assert staves().staff_key(UPPER) == (MEASURE, 1)
