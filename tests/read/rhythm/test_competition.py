"""The game of competing readings."""

import pytest
from tests.read.rhythm.events import chord, measure

from entourage.read.rhythm.competition import play


def test_the_game_makes_a_lonely_tuplet_of_a_group_dearer() -> None:
    upper = [chord(30 * k, "eighth", group=1) for k in range(4)]
    lower = [chord(30 * k, "eighth", staff=1, group=2) for k in range(4)]
    given = measure(upper + lower, 2.0, 2)
    played = play(given)
    cost = {
        choice.tuplet: choice.cost
        for choice in reversed(played.choices[0])
        if choice.value == "eighth" and not choice.dots
    }
    assert cost[None] < cost[3, 2]
    assert min(choice.cost for choice in played.choices[0]) == pytest.approx(0.0, abs=1e-9)
