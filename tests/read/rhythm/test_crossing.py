import numpy as np

from entourage.read.rhythm.crossing import solve_across
from entourage.read.rhythm.durations import TICKS
from entourage.read.rhythm.readings import MeasureInput
from entourage.read.symbols.glyphs import Event


def rest(x: float, staff: int, value: str = "quarter") -> Event:
    """Return a rest."""
    box = np.array([x - 4, 90.0, x + 4, 110.0])
    return Event(staff=staff, x=x, heads=[], stem=None, value=value, dots=0, box=box)


def test_rests_of_one_voice_on_two_staves_add_up() -> None:
    events = [rest(100 + 60 * k, staff) for k, staff in enumerate((0, 1, 0, 1))]
    (best, *_) = solve_across(MeasureInput(events, [0, 1, 0, 1], 2, 4 * TICKS))
    assert best.problem == ""
    assert [placed.onset for placed in best.placed] == [0, TICKS, 2 * TICKS, 3 * TICKS]


def test_staves_that_add_up_alone_are_kept() -> None:
    events = [rest(100 + 60 * k, staff) for k in range(4) for staff in (0, 1)]
    (best, *_) = solve_across(MeasureInput(events, [0, 1] * 4, 2, 4 * TICKS))
    assert best.problem == ""
    assert {placed.staff for placed in best.placed} == {0, 1}
