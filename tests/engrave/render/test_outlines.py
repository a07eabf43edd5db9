import math

import numpy as np
import pytest

from entourage.engrave.render.outlines import (
    Edges,
    dashes,
    ellipse,
    fill_edges,
    orient_positive,
    parse_path,
    rectangle,
    rings,
    rotate_points,
    split_at,
    stroke_edges,
    transform_edges,
)


def area(edges: Edges) -> float:
    x0, y0, x1, y1 = edges.T
    return float((x0 * y1 - x1 * y0).sum() / 2)


def test_absolute_and_relative_commands_are_equivalent() -> None:
    (absolute,) = parse_path("M1 2 L4 2 L4 6 H1 V2 Z", 0.1)
    (relative,) = parse_path("m1 2 3 0 0 4 h-3 v-4 z", 0.1)
    np.testing.assert_array_equal(absolute, relative)
    assert abs(area(fill_edges([absolute]))) == 12


@pytest.mark.parametrize("tolerance", [0.5, 0.05, 0.005])
def test_chords_are_within_the_tolerance_of_curves(tolerance: float) -> None:
    k = 4 / 3 * math.tan(math.pi / 8)  # a cubic that approximates a quarter circle to 3e-4 of the radius
    (points,) = parse_path(f"M10 0C10 {10 * k} {10 * k} 10 0 10", tolerance)
    centres = (points[1:] + points[:-1]) / 2
    assert np.abs(np.hypot(*centres.T) - 10).max() < tolerance + 0.003


def test_smooth_curves_reflect_the_control_point() -> None:
    (long,) = parse_path("M0 0C0 1 1 2 2 2C3 2 4 1 4 0", 0.01)
    (short,) = parse_path("M0 0c0 1 1 2 2 2s2 -1 2 -2", 0.01)
    np.testing.assert_allclose(short, long)
    (long,) = parse_path("M0 0Q1 1 2 0Q3 -1 4 0", 0.01)
    (short,) = parse_path("M0 0Q1 1 2 0T4 0", 0.01)
    np.testing.assert_allclose(short, long)


def test_straight_paths_are_parsed_like_other_paths() -> None:
    np.testing.assert_array_equal(parse_path("M1 -2 L30 4", 1)[0], parse_path("M 1,-2 L 30,4", 1)[0])


@pytest.mark.parametrize("d", ["M0 0 A1 1 0 0 0 1 1", "M0", "M0 0 C1 1", "M0 0 Z 3"])
def test_invalid_paths_raise_an_error(d: str) -> None:
    with pytest.raises(ValueError, match="cannot be read; expected M L H V C S Q T Z"):
        parse_path(d, 0.1)


def test_holes_are_subtracted() -> None:
    ring = fill_edges(parse_path("M0 0H10V10H0Z M2 2V8H8V2Z", 0.1))
    assert abs(area(ring)) == 100 - 36


def test_strokes_cover_length_times_width() -> None:
    assert area(stroke_edges(np.array([[0.0, 0.0], [3.0, 4.0]]), 2.0)) == pytest.approx(10)
    assert area(stroke_edges(np.array([[0.0, 0.0], [3.0, 4.0]]), 2.0, "square")) == pytest.approx(14)
    bent = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 5.0]])
    assert area(stroke_edges(bent, 1.0)) == pytest.approx(10 + math.hypot(10, 5), rel=0.01)


def test_sharp_corners_are_divided_into_two_strokes() -> None:
    arms = np.array([[100.0, 10.0], [0.0, 0.0], [100.0, -10.0]])
    assert area(stroke_edges(arms, 2.0)) == pytest.approx(2 * 2 * math.hypot(100, 10))


def test_strokes_of_length_0_have_no_edges() -> None:
    assert len(stroke_edges(np.array([[1.0, 1.0], [1.0, 1.0]]), 2.0)) == 0
    assert len(stroke_edges(np.array([[1.0, 1.0], [1.0, 1.0]]), 2.0, "round")) == 0


def test_ellipses_and_rectangles_have_their_area() -> None:
    assert area(ellipse(5, 6, 3, 2)) == pytest.approx(math.pi * 6)
    assert area(rectangle(1, 2, 3, 4)) == 12


def test_orient_positive_reverses_negative_outlines_only() -> None:
    box = rectangle(0, 0, 2, 2)
    assert area(orient_positive(box[:, [2, 3, 0, 1]])) == area(orient_positive(box)) == 4


def test_dashes_continue_around_a_corner() -> None:
    line = np.array([[0.0, 0.0], [5.0, 0.0], [5.0, 5.0]])
    pieces = dashes(line, [4.0, 2.0])
    assert [piece.tolist() for piece in pieces] == [[[0, 0], [4, 0]], [[5, 1], [5, 5]]]
    assert dashes(line, [])[0] is line
    assert dashes(line, [0.0])[0] is line


def test_transform_edges_scales_before_shifting() -> None:
    np.testing.assert_array_equal(transform_edges(np.array([[0.0, 0, 1, 2]]), 3, 10, 20), [[10, 20, 13, 26]])


def test_areas_of_both_halves_equal_the_area() -> None:
    ring = fill_edges(parse_path("M0 0H10V10H0Z M2 2V8H8V2Z", 0.1))
    assert [len(outline) for outline in rings(ring)] == [5, 5]
    above, below = split_at(ring, 4)
    assert abs(area(above)) == 40 - 12
    assert abs(area(below)) == 60 - 24
    assert above[:, [1, 3]].max() == below[:, [1, 3]].min() == 4


def test_rotation_is_clockwise_with_y_downwards() -> None:
    np.testing.assert_allclose(rotate_points(np.array([[3.0, 5], [1, 5]]), 90, 1, 5), [[1, 7], [1, 5]], atol=1e-12)
