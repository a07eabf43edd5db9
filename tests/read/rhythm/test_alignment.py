"""Tests of rhythms of several parts."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from tests.read.rhythm.events import chord, measure, rest

from entourage.read.rhythm.alignment import solve_parts
from entourage.read.rhythm.durations import TICKS
from entourage.read.rhythm.readings import Reading


def onsets(reading: Reading) -> list[Fraction]:
    return [Fraction(placed.onset, TICKS) for placed in sorted(reading.placed, key=lambda p: p.event.x)]


def test_a_part_that_adds_up_corrects_another_one() -> None:
    """A quarter note and a triplet without a figure above eight eighth notes."""
    voice = [chord(x, "eighth" if x else "quarter", group=1 if x else None) for x in (0, 40, 67, 93)]
    piano = [chord(20 * k, "eighth", group=k // 2 + 1) for k in range(4)]
    alone, _ = solve_parts("rules", [measure(voice, 2.0), measure(piano, 2.0)])
    assert alone[0].problem
    found, below = solve_parts("search", [measure(voice, 2.0), measure(piano, 2.0)])
    assert onsets(found[0]) == [0, 1, Fraction(4, 3), Fraction(5, 3)]
    assert onsets(below[0]) == [0, Fraction(1, 2), 1, Fraction(3, 2)]


def test_chords_one_above_the_other_begin_together() -> None:
    """The beams of two of three chords are too many, which the voice above shows."""
    voice = [chord(60 * k, "quarter") for k in range(4)]
    values = ("quarter", "eighth", "eighth", "quarter", "quarter")
    piano = [chord(x, value) for x, value in zip((0, 60, 90, 120, 180), values, strict=True)]
    piano[0] = chord(0, "half")
    _, found = solve_parts("search", [measure(voice), measure(piano)])
    assert onsets(found[0])[1] == 1


def test_an_upbeat_lasts_as_long_in_all_parts() -> None:
    voice = [rest(40, "quarter")]
    piano = [chord(40 + 20 * k, "eighth", group=1) for k in range(3)]
    found = solve_parts("search", [measure(row, may_be_short=True) for row in (voice, piano)])
    assert [rows[0].length for rows in found] == [TICKS, TICKS]
    assert all(b - a == Fraction(1, 3) for a, b in pairwise(onsets(found[1][0])))


def test_rests_of_whole_measures_are_no_anchors() -> None:
    voice = [rest(90, "whole")]
    piano = [chord(45 * k, "quarter") for k in range(4)]
    found = solve_parts("search", [measure(voice), measure(piano)])
    assert onsets(found[1][0]) == [0, 1, 2, 3]
    assert found[1][0].problem == ""
