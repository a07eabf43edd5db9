"""Tests of beamed groups and shared dots."""

from __future__ import annotations

import numpy as np
from tests.read.rhythm.events import chord

from entourage.read.symbols.groups import group_beams, share_dots


def test_chords_under_one_beam_are_a_group() -> None:
    events = [chord(x, "eighth", beams=b) for x, b in ((0, (0, 1)), (40, (1, 0)), (80, (0, 1)), (120, (1, 0)))]
    for event in events:
        event.stem.top = 30.0  # type: ignore[union-attr]
    group_beams(events, np.array([[4.0, 28.0, 38.0, 33.0], [80.0, 28.0, 120.0, 33.0]]))
    first, second, third, fourth = (event.beam_group for event in events)
    assert first == second != third == fourth


def test_beams_that_do_not_reach_the_next_chord_are_noted() -> None:
    events = [chord(0, "16th", beams=(0, 2)), chord(40, "eighth", beams=(1, 1)), chord(80, "eighth", beams=(1, 0))]
    for event in events:
        event.stem.top = 30.0  # type: ignore[union-attr]
    group_beams(events, np.array([[0.0, 28.0, 80.0, 33.0]]))
    assert [event.reaching for event in events] == [1, 0, 0]


def test_a_dot_is_shared_with_a_head_to_the_left_at_the_same_height() -> None:
    events = [
        chord(0, "quarter"),
        chord(18, "half", dots=1),
        chord(80, "quarter"),
        chord(98, "half", dots=1, position=4),
    ]
    share_dots(events)
    assert [event.shared_dot for event in events] == [True, False, False, False]
