"""Tests of the search for onsets, durations and voices of a measure."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import pytest
from tests.read.rhythm.events import chord, measure, rest

from entourage.read.rhythm.crossing import solve_by
from entourage.read.rhythm.durations import TICKS, choices_of, ticks_of
from entourage.read.rhythm.readings import Reading
from entourage.read.rhythm.search import solve, solve_by_rules


def onsets(reading: Reading) -> list[Fraction]:
    return [Fraction(placed.onset, TICKS) for placed in sorted(reading.placed, key=lambda p: p.event.x)]


def test_printed_durations_that_add_up_cost_nothing_but_spacing() -> None:
    events = [chord(40 * k, "quarter") for k in range(4)]
    best = solve(measure(events))[0]
    assert onsets(best) == [0, 1, 2, 3]
    assert best.cost < 0.2
    assert best.problem == ""


def test_stems_separate_two_voices_of_a_staff() -> None:
    upper = [chord(40 * k, "quarter") for k in range(4)]
    lower = [chord(0, "half", direction="down"), chord(80, "half", direction="down")]
    best = solve(measure(upper + lower))[0]
    assert best.problem == ""
    assert {placed.voice for placed in best.placed if placed.event.value == "half"} == {1}
    assert {placed.voice for placed in best.placed if placed.event.value == "quarter"} == {0}


def test_whole_beamed_groups_without_figures_become_triplets_if_the_measure_needs_it() -> None:
    triplets = [chord(20 * k, "eighth", group=1 + k // 3) for k in range(6)]
    below = [chord(60 * k, "quarter", staff=1) for k in range(2)]
    best = solve(measure(triplets + below, 2.0, 2))[0]
    assert best.problem == ""
    assert [p.choice.tuplet for p in best.placed if p.staff == 0] == [(3, 2)] * 6
    assert {Fraction(p.onset, TICKS) for p in best.placed if p.staff == 1} == {Fraction(0), Fraction(1)}


def test_a_tuplet_is_complete_or_does_not_begin() -> None:
    events = [chord(20 * k, "eighth", group=1) for k in range(4)]
    for reading in solve(measure(events, 2.0)):
        totals = sum(ticks_of(p.choice.value, p.choice.dots) for p in reading.placed if p.choice.tuplet)
        assert reading.problem or totals % (3 * ticks_of("16th")) == 0


def test_the_other_staff_corrects_a_beam_too_many() -> None:
    upper = [chord(30 * k, "16th" if k == 1 else "eighth", group=1) for k in range(4)]
    lower = [chord(30 * k, "eighth", staff=1, group=2) for k in range(4)]
    best = solve(measure(upper + lower, 2.0, 2))[0]
    assert best.problem == ""
    assert {p.choice.value for p in best.placed} == {"eighth"}


def test_a_rest_in_the_middle_of_an_empty_staff_lasts_the_measure() -> None:
    events = [chord(40 * k, "quarter") for k in range(3)] + [rest(60, "whole", staff=1)]
    best = solve(measure(events, 3.0, 2))[0]
    whole = next(p for p in best.placed if p.staff == 1)
    assert (whole.onset, whole.choice.ticks, whole.choice.full_measure) == (0, 3 * TICKS, True)


def test_the_second_reading_costs_more_and_differs() -> None:
    events = [chord(0, "quarter"), chord(50, "quarter"), chord(100, "eighth")]
    best, second = solve(measure(events, 3.0))
    assert best.cost <= second.cost
    assert [(p.onset, p.choice.ticks) for p in best.placed] != [(p.onset, p.choice.ticks) for p in second.placed]


def test_readings_above_a_cost_are_not_sought() -> None:
    events = [chord(40 * k, "quarter") for k in range(5)]
    assert solve(measure(events), below=0.5) == []
    assert solve(measure(events))[0].cost > 0.5


def test_a_measure_that_cannot_add_up_is_marked() -> None:
    assert "shorter" in solve(measure([chord(0, "quarter"), chord(40, "quarter")], 4.0))[0].problem


def test_an_incomplete_measure_is_not_marked_where_one_is_expected() -> None:
    best = solve(measure([chord(0, "quarter")], 4.0, may_be_short=True))[0]
    assert (best.problem, best.length) == ("", TICKS)


def test_an_empty_measure_has_the_expected_length() -> None:
    assert solve(measure([], 3.0)) == [Reading([], 3 * TICKS, 0.0)]


def test_rules_keep_what_is_printed() -> None:
    events = [chord(20 * k, "eighth", group=1 + k // 3) for k in range(6)]
    best = solve_by_rules(measure(events, 2.0))
    assert [p.choice.ticks for p in best.placed] == [TICKS // 2] * 6
    assert best.problem


@pytest.mark.parametrize("method", ["rules", "search", "game"])
def test_all_methods_read_a_plain_measure(method: Literal["rules", "search", "game"]) -> None:
    best = solve_by(method, measure([chord(40 * k, "quarter") for k in range(4)]))[0]
    assert onsets(best) == [0, 1, 2, 3]
    assert best.problem == ""


def test_choices_contain_the_printed_duration_first() -> None:
    event = chord(0, "eighth", dots=1)
    choices = choices_of(event, 0, [event], 4 * TICKS)
    assert (choices[0].value, choices[0].dots, choices[0].cost) == ("eighth", 1, 0.0)
    assert sum(choice.dropped for choice in choices) == 1
    assert [choice.cost for choice in choices] == sorted(choice.cost for choice in choices)


def test_a_beamed_group_of_five_equal_notes_may_be_a_quintuplet() -> None:
    group = [chord(20 * k, "16th", group=1) for k in range(5)]
    best = solve(measure([*group, chord(120, "quarter")], 2.0))[0]
    assert [p.choice.tuplet for p in best.placed][:5] == [(5, 4)] * 5
    assert best.problem == ""


def test_heads_of_two_voices_side_by_side_begin_together() -> None:
    events = [
        chord(0, "quarter"),
        chord(18, "half", direction="down"),
        *(chord(60 * k, "quarter") for k in (1, 2, 3)),
        chord(120, "half", direction="down"),
    ]
    best = solve(measure(events))[0]
    assert best.problem == ""
    assert onsets(best) == [0, 0, 1, 2, 2, 3]


def test_partial_beams_that_are_other_ink_are_left_out() -> None:
    first = chord(0, "16th", group=1, beams=(0, 2))
    first.reaching = 1
    events = [first, chord(40, "eighth", group=1), chord(80, "quarter")]
    best = solve(measure(events, 2.0))[0]
    assert onsets(best) == [0, Fraction(1, 2), 1]


def test_a_shared_dot_lengthens_both_chords() -> None:
    first = chord(0, "quarter")
    first.shared_dot = True
    events = [first, chord(60, "eighth"), chord(0, "half", direction="down")]
    best = solve(measure(events, 2.0))[0]
    assert onsets(best) == [0, 0, Fraction(3, 2)]


def test_a_tuplet_does_not_continue_into_the_next_beamed_group() -> None:
    events = [
        chord(0, "16th", group=1, beams=(0, 2)),
        *(chord(40 * k, "eighth", group=1) for k in (1, 2)),
        *(chord(40 * k, "eighth", group=2) for k in (3, 4, 5)),
    ]
    events[0].reaching = 1
    best = solve(measure(events, 2.0, tuplets=[3] * 6))[0]
    assert [p.choice.value for p in best.placed] == ["eighth"] * 6
    assert [p.choice.tuplet for p in best.placed] == [(3, 2)] * 6


@pytest.mark.parametrize("method", ["rules", "search", "game"])
def test_more_chords_at_one_place_than_voices(method: Literal["rules", "search", "game"]) -> None:
    events = [chord(k / 4, "quarter", direction="down" if k % 2 else "up") for k in range(6)]
    best = solve_by(method, measure(events, 1.0))[0]
    assert 1 <= len(best.placed) <= 4
    assert bool(best.problem) is (method == "rules")
