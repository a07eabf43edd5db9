from __future__ import annotations

from fractions import Fraction

import pytest
from tests.serve.scores.conftest import lower

from entourage.serve.scores.bars import Bar, Entry, Music, copy_bar
from entourage.serve.scores.rhythm import Frame, duration_of, next_reading, solve_bar

FRAME = Frame(2, Fraction(4), 10.0, may_be_short=False)


def rows(bar: Bar, staff: int = 1) -> list[tuple[float, str, int]]:
    return [(float(e.chord.onset), e.chord.value, e.chord.voice) for e in bar.entries if e.chord.staff == staff]


def correct(bar: Bar, number: int, value: str) -> None:
    entry = bar.entries[number]
    entry.fix("duration")
    entry.chord.value, entry.chord.duration = value, duration_of(value, 0, None)


def test_a_measure_that_adds_up_stays_as_it_is(music: Music) -> None:
    for index in range(4):
        bar = copy_bar(music.bar(0, index))
        solve_bar(bar, FRAME)
        for old, new in zip(music.bar(0, index).entries, bar.entries, strict=True):
            assert new.chord == old.chord
        assert not bar.measure.problem


def test_other_durations_follow_a_corrected_one(music: Music) -> None:
    bar = copy_bar(music.bar(0, 0))
    correct(bar, 0, "half")  # the second quarter note and the half note have to share two beats
    solve_bar(bar, FRAME)
    assert rows(bar) == [(0.0, "half", 1), (2.0, "quarter", 1), (3.0, "quarter", 1)]
    assert not bar.measure.problem
    assert rows(bar, 2) == [(0.0, "whole", 5)]


def test_corrected_durations_that_cannot_add_up_are_kept_with_the_reason(music: Music) -> None:
    bar = copy_bar(music.bar(0, 2))
    correct(bar, 0, "half")
    correct(bar, 1, "whole")
    solve_bar(bar, FRAME)
    assert rows(bar) == [(0.0, "half", 1), (2.0, "whole", 1)]
    assert bar.measure.problem == "a voice is longer than the measure"
    assert bar.measure.confidence < 0.5


def test_the_beams_of_a_changed_group_follow(music: Music) -> None:
    bar = copy_bar(music.bar(0, 1))
    assert [entry.chord.beams for entry in bar.entries[:3]] == [["begin"], ["end"], []]
    correct(bar, 0, "quarter")
    correct(bar, 1, "quarter")
    solve_bar(bar, FRAME)
    assert [entry.chord.beams for entry in bar.entries[:3]] == [[], [], []]


def test_readings_follow_each_other_and_the_first_comes_again(music: Music) -> None:
    bar = copy_bar(music.bar(0, 0))
    correct(bar, 0, "half")
    solve_bar(bar, FRAME)
    first, seen = rows(bar), []
    for _ in range(12):
        assert next_reading(bar, FRAME)
        assert any(entry.chord.value == "half" and entry.is_fixed("duration") for entry in bar.entries)
        if rows(bar) == first:
            break
        seen.append((rows(bar), len(bar.dropped)))
    assert rows(bar) == first
    assert seen


def test_a_measure_without_chords_has_no_other_reading(music: Music) -> None:
    bar = copy_bar(music.bar(0, 0))
    bar.entries.clear()
    solve_bar(bar, FRAME)
    assert not next_reading(bar, FRAME)


def test_a_corrected_voice_stays(music: Music) -> None:
    bar = copy_bar(music.bar(0, 2))
    entry = bar.entries[1]
    entry.fix("voice")
    entry.chord.voice = 2
    solve_bar(bar, FRAME)
    assert entry.chord.voice == 2
    assert entry.chord.onset == 2


def test_incomplete_measures_are_right_at_the_ends_of_a_piece(music: Music) -> None:
    for may_be_short, problem in ((True, ""), (False, "all voices are shorter than the measure")):
        bar = copy_bar(music.bar(0, 3))
        bar.entries = [Entry(lower(0, "quarter", "G3"))]
        bar.entries[0].fix("duration")
        solve_bar(bar, Frame(2, Fraction(4), 10.0, may_be_short=may_be_short))
        assert bar.measure.problem == problem


def test_lengths_of_note_values() -> None:
    assert duration_of("quarter", 1, None) == Fraction(3, 2)
    assert duration_of("eighth", 0, (3, 2)) == Fraction(1, 3)
    for value, dots, tuplet, name in (
        ("third", 0, None, "value"),
        ("half", 4, None, "value"),
        ("half", 0, (3, 4), "tuplet"),
    ):
        with pytest.raises(ValueError, match=f"{name} is .*expected"):
            duration_of(value, dots, tuplet)
