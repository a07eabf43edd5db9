import math

import numpy as np
from numpy.typing import NDArray

from entourage.engrave.render.outlines import Edges, ellipse, fill_edges, parse_path, rectangle
from entourage.engrave.render.raster import rasterise


def rasterise_one(edges: Edges, height: int, width: int) -> NDArray[np.float64]:
    ink = rasterise([edges])
    image = np.zeros((height, width))
    image[ink.y, ink.x] = ink.coverage
    return image


def test_the_coverage_of_a_box_is_exact() -> None:
    rows = np.array([0.75, 1, 0.5, 0])  # from 0.25 to 2.5
    columns = np.array([0, 0.5, 1, 1, 0.125])  # from 1.5 to 4.125
    np.testing.assert_allclose(
        rasterise_one(rectangle(1.5, 0.25, 2.625, 2.25), 4, 5), np.outer(rows, columns), atol=1e-6
    )


def test_coverage_equals_that_of_fine_sampling() -> None:
    """Compare a star-like outline with 64 x 64 samples per pixel."""
    rng = np.random.default_rng(3)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 9))
    points = np.stack([6 + rng.uniform(2, 5, 9) * np.cos(angle), 6 + rng.uniform(2, 5, 9) * np.sin(angle)], axis=1)
    fine = (np.arange(12 * 64) + 0.5) / 64
    x, y = np.meshgrid(fine, fine)
    inside = np.zeros_like(x, dtype=bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            crosses = ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
        inside ^= crosses
    expected = inside.reshape(12, 64, 12, 64).mean(axis=(1, 3))
    assert (
        np.abs(rasterise_one(fill_edges([points]), 12, 12) - expected).max() < 2 / 64
    )  # each of two edges at a corner has an error of 1/64


def test_total_coverage_is_the_area() -> None:
    assert math.isclose(rasterise_one(ellipse(10.3, 9.7, 7, 4), 20, 20).sum(), math.pi * 28, rel_tol=1e-4)


def test_holes_are_empty_and_overlaps_are_covered_once() -> None:
    ring = fill_edges(parse_path("M0 0H6V6H0Z M2 2V4H4V2Z", 0.1))
    image = rasterise_one(ring, 6, 6)
    assert image[3, 3] == 0
    assert image.sum() == 32
    twice = np.concatenate([rectangle(0, 0, 4, 4), rectangle(2, 2, 4, 4)])
    assert rasterise_one(twice, 6, 6).max() == 1
    assert rasterise_one(twice, 6, 6).sum() == 28


def test_areas_of_overlapping_parts_are_added_up_to_1() -> None:
    part = rectangle(0, 0, 2.5, 1)
    np.testing.assert_allclose(rasterise_one(part, 1, 3), [[1, 1, 0.5]])
    np.testing.assert_allclose(rasterise_one(np.concatenate([part] * 2), 1, 3), [[1, 1, 1]])
    np.testing.assert_allclose(rasterise_one(np.concatenate([part, rectangle(1, 0, 1.25, 1)]), 1, 3), [[1, 1, 0.75]])


def test_shapes_are_separate_and_may_be_empty_or_beyond_the_page() -> None:
    shapes = [rectangle(0, 0, 2, 1), fill_edges([]), rectangle(-3, -2, 1, 1), rectangle(5, 5, 1, 3)]
    ink = rasterise(shapes)
    assert np.diff(ink.start).tolist() == [2, 0, 1, 3]
    assert (ink.x[2], ink.y[2]) == (-3, -2)
    assert ink.y[3:].tolist() == [5, 6, 7]


def test_no_shapes_give_no_ink() -> None:
    assert len(rasterise([]).x) == 0
    assert rasterise([fill_edges([])]).start.tolist() == [0, 0]


def test_large_coordinates_need_no_memory() -> None:
    ink = rasterise([rectangle(0, 0, 1e12, 1)])
    assert ink.x.max() < 20_001
