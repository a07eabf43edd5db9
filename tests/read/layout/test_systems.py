"""Data types of the layout: positions on a staff, distances to a system, and its measures."""

import numpy as np
import pytest

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import BarLine, StaffLines, System


def staff(y: float, stretch: float = 0.0) -> StaffLines:
    return StaffLines(np.array([0.0, 400.0]), np.array([y, y + 4]), stretch=stretch)


def test_lines_are_interpolated_and_end_at_the_nearest_point() -> None:
    assert staff(100).y(200) == 102
    assert staff(100).y(-50) == 100
    assert staff(100).top(400) == 104 - 2 * INTERLINE
    assert staff(100).bottom(400) == 104 + 2 * INTERLINE


def test_positions_are_steps_above_the_middle_line() -> None:
    one = staff(100)
    assert one.position(0, 100) == 0
    assert one.position(0, one.top(0)) == 4
    assert one.position(0, one.bottom(0)) == -4
    wide = staff(100, stretch=0.5)  # ledger lines are farther apart
    assert wide.position(0, 100 - 2 * INTERLINE) == 4
    assert wide.position(0, 100 - 2 * INTERLINE - 1.5 * INTERLINE) == pytest.approx(6)


def test_the_distance_to_a_system_is_0_between_its_outer_lines() -> None:
    system = System([staff(100), staff(200)])
    assert system.distance(0, 150) == 0
    assert system.distance(0, system.staves[0].top(0) - 7) == pytest.approx(7)
    assert system.distance(0, system.staves[1].bottom(0) + 3) == pytest.approx(3)


def test_measures_lie_between_bar_lines() -> None:
    bars = [BarLine(x, "regular", x - 1, x + 1) for x in (150.0, 399.0)]
    assert System([staff(100)], bars).spans() == [(0, 150), (150, 399)]
    assert System([staff(100)], bars[:1]).spans() == [(0, 150), (150, 400)]  # the last bar line is cut off
    assert System([staff(100)]).spans() == [(0, 400)]
