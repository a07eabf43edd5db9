"""Staff, measure and time of a place between and on drawn staves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.read.small import chord, measure

from entourage.read.assemble import SystemReading
from entourage.read.layout.systems import StaffLines, System
from entourage.read.places import locate, staff_for
from entourage.read.score import Chord
from entourage.read.spans import Span
from entourage.read.symbols.glyphs import Event


def reading(*groups: tuple[int, ...], chords: dict[float, Chord] | None = None) -> SystemReading:
    """Return two measures, from 0 to 400 and from 400 to 800, on staves with middle lines at 100, 250, ...

    Args:
        groups: staves of each part.
        chords: chords of the first part by their x coordinates.
    """
    n_staves = sum(len(group) for group in groups)
    x = np.array([0.0, 800.0])
    system = System([StaffLines(x, np.full(2, 100.0 + 150 * k)) for k in range(n_staves)], groups=list(groups))
    spans = [Span(0.0, 400.0, None, [], []), Span(400.0, 800.0, None, [], [])]
    found = SystemReading(system, spans, [[measure(1, []), measure(2, [], 3)] for _ in groups])
    for place, one in (chords or {}).items():
        event = Event(0, place, [], None, one.value, 0, np.zeros(4))
        found.chords.append((event, one, 0, int(place >= 400)))
    return found


@pytest.mark.parametrize(
    ("y", "groups", "expected"),
    [
        (50, [(0, 1)], (0, "above")),
        (140, [(0, 1)], (0, "below")),
        (225, [(0, 1)], (0, "below")),  # between the staves of a part: the upper one
        (140, [(0,), (1,)], (0, "below")),
        (225, [(0,), (1,)], (1, "above")),  # between parts: the nearer one
        (300, [(0,), (1,)], (1, "below")),
    ],
)
def test_a_sign_belongs_to_the_nearer_staff_or_to_the_upper_one_of_a_part(
    y: float, groups: list[tuple[int, ...]], expected: tuple[int, str]
) -> None:
    assert staff_for(y, 10.0, reading(*groups)) == expected


def test_staves_are_followed_where_they_rise() -> None:
    falling = System([StaffLines(np.array([0.0, 800.0]), np.array([100.0, 180.0]))], groups=[(0,)])
    found = SystemReading(falling, [], [[]])
    assert [staff_for(150.0, x, found)[1] for x in (0.0, 800.0)] == ["below", "above"]


def test_a_place_has_the_time_of_the_nearest_chord_of_its_measure() -> None:
    found = reading((0,), chords={100: chord(0, "half"), 200: chord(2, "half"), 500: chord(0, "half")})
    for x, number, onset in ((0, 0, 0), (149, 0, 0), (151, 0, 2), (399, 0, 2), (400, 1, 0), (900, 1, 0)):
        assert locate(x, 0, found) == (found.parts[0][number], 1, Fraction(onset))


def test_grace_notes_have_no_time() -> None:
    found = reading((0,), chords={100: chord(0, "half"), 195: chord(1, "eighth", grace="grace"), 250: chord(2, "half")})
    assert locate(190, 0, found) == (found.parts[0][0], 1, 2)


def test_a_place_behind_the_last_chord_can_be_the_end_of_the_measure() -> None:
    found = reading((0,), chords={500: chord(0, "half"), 600: chord(2, "quarter")})
    assert locate(614, 0, found, after=True) == (found.parts[0][1], 1, 2)
    assert locate(616, 0, found, after=True) == (found.parts[0][1], 1, 3)
    assert locate(616, 0, found) == (found.parts[0][1], 1, 2)


def test_staves_are_numbered_within_their_part() -> None:
    found = reading((0,), (1, 2), chords={100: chord(2, "half")})
    assert locate(100, 2, found) == (found.parts[1][0], 2, 0)  # chords of the other part have no influence
    found.spans.clear()
    assert locate(100, 2, found) is None
