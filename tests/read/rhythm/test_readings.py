"""Tests of columns and anchors."""

from __future__ import annotations

from tests.read.rhythm.events import chord, measure

from entourage.read.rhythm.readings import columns_of, deviates


def test_chords_at_one_place_are_a_column() -> None:
    events = [chord(0, "half"), chord(3, "quarter"), chord(40, "quarter")]
    assert columns_of(measure(events)) == [[0, 1], [2]]


def test_chords_of_other_parts_bound_the_onset() -> None:
    anchors = [(0.0, 0), (50.0, 100), (100.0, 200)]
    assert not deviates(anchors, 52.0, 100)
    assert deviates(anchors, 52.0, 50)
    assert not deviates(anchors, 75.0, 150)
    assert deviates(anchors, 75.0, 100)
    assert deviates(anchors, 75.0, 200)
    assert not deviates(anchors, 60.0, 100)  # near enough to begin with its neighbour
