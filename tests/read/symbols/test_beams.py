"""Tests of the levels of beams in drawn ink."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from entourage.read.symbols.beams import BeamInk, measure_beams, runs_of


def drawn(levels: int, thickness: int, gap: int, zoom: int = 1) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return the ink of beams from x = 20 to 180 below y = 30, and the box of the first."""
    ink = np.zeros((120 * zoom, 200 * zoom), dtype=bool)
    for k in range(levels):
        top = (30 + k * (thickness + gap)) * zoom
        ink[top : top + thickness * zoom, 20 * zoom : 180 * zoom] = True
    return ink, np.array([[20.0, 30.0, 180.0, 30.0 + thickness]])


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize(("thickness", "gap"), [(5, 3), (8, 2)])
@pytest.mark.parametrize("zoom", [1, 2])
def test_levels_on_both_sides_of_a_stem(levels: int, thickness: int, gap: int, zoom: int) -> None:
    ink, boxes = drawn(levels, thickness, gap, zoom)
    page = BeamInk(ink, zoom, thickness, gap)
    assert page.count(100, 30, "up", [90.0], boxes) == (levels, levels)
    assert page.count(20, 30, "up", [90.0], boxes) == (0, levels)
    assert page.count(180, 30, "up", [90.0], boxes) == (levels, 0)


def test_no_detected_beam_no_levels() -> None:
    ink, _ = drawn(2, 5, 3)
    assert BeamInk(ink).count(100, 30, "up", [90.0], np.zeros((0, 4))) == (0, 0)


def test_staff_lines_are_no_beams() -> None:
    ink, boxes = drawn(1, 8, 2)
    ink[42:44] = ink[52:54] = True
    assert BeamInk(ink, 1.0, 8.0, 2.0).count(100, 30, "up", [90.0], boxes) == (1, 1)


def test_a_run_of_several_beams_is_divided() -> None:
    page = BeamInk(np.zeros((1, 1), dtype=bool), 1.0, 8.0, 1.0)
    assert [page.levels(height) for height in (3.0, 8.0, 17.0, 26.0)] == [0, 1, 2, 3]


def test_thickness_and_gap_are_measured_on_the_page() -> None:
    ink, boxes = drawn(2, 8, 2)
    page = measure_beams(ink, np.repeat(boxes, 10, axis=0))
    assert (page.thickness, page.gap) == (8.0, 2.0)


def test_runs() -> None:
    assert runs_of(np.array([1, 1, 0, 1], dtype=bool)) == [(0, 2), (3, 4)]
    assert runs_of(np.zeros(3, dtype=bool)) == []


def test_ink_on_a_side_that_no_beam_reaches_is_no_beam() -> None:
    ink, _ = drawn(1, 5, 3)
    boxes = np.array([[100.0, 30.0, 180.0, 35.0]])
    assert BeamInk(ink).count(100, 30, "up", [90.0], boxes) == (0, 1)
