"""Lengths of note values, and the readings of a single chord or rest."""

import pytest
from tests.read.rhythm.events import chord, rest

from entourage.read.rhythm.durations import TICKS, choices_of, printed, ticks_of


@pytest.mark.parametrize(
    ("value", "dots", "quarters"),
    [("whole", 0, 4), ("quarter", 0, 1), ("quarter", 1, 1.5), ("half", 2, 3.5), ("64th", 0, 1 / 16)],
)
def test_dots_add_half_of_the_preceding_value(value: str, dots: int, quarters: float) -> None:
    assert ticks_of(value, dots) == quarters * TICKS


def test_lengths_that_are_no_whole_number_of_ticks_are_0() -> None:
    assert ticks_of("128th", 5) == 0


def test_the_printed_reading_costs_nothing() -> None:
    choice = printed(chord(0, "eighth", dots=1))
    assert (choice.ticks, choice.value, choice.dots, choice.cost) == (0.75 * TICKS, "eighth", 1, 0)


def test_a_whole_rest_may_last_the_measure() -> None:
    (full,) = [choice for choice in choices_of(rest(0, "whole"), 0, [], 3 * TICKS) if choice.full_measure]
    assert full.ticks == 3 * TICKS
    assert not any(choice.full_measure for choice in choices_of(rest(0, "half"), 0, [], 3 * TICKS))


def test_a_printed_number_makes_the_tuplet_cheaper_than_the_printed_value() -> None:
    event = chord(0, "eighth", group=1)
    cost = {
        choice.tuplet: choice.cost for choice in reversed(choices_of(event, 3, [event] * 3, None)) if not choice.dots
    }
    assert cost[3, 2] < cost[None]
    (triplet,) = [choice for choice in choices_of(event, 3, [event] * 3, None) if choice.tuplet and choice.cost == 0]
    assert triplet.ticks == TICKS // 3
