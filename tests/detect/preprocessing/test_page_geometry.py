from __future__ import annotations

import cv2
import numpy as np
import pytest
from tests.detect.synthetic import staff_page, with_squares

from entourage.detect.preprocessing.page_geometry import estimate_interline, staff_ink
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score

H, W = 1400, 1300


@pytest.mark.parametrize("interline", [8.0, 10.0, 13.5, 20.0, 28.8, 41.0])
def test_the_interline_of_staves_is_estimated(interline: float) -> None:
    page = staff_page(interline, height=1200, width=700, staves=4, thick=max(1, round(interline / 10)))
    assert estimate_interline(page) == pytest.approx(interline, rel=0.01)


@pytest.mark.parametrize("kind", ["none", "scan", "photo"])
def test_the_interline_of_composed_and_degraded_pages_is_within_two_per_cent(kind: str) -> None:
    degrader = None if kind == "none" else Degrader(kind, H, W, seed=3)  # type: ignore[arg-type]
    engraver = VerovioEngraver(PageOptions(width=W, height=H, interline=20.0), MusicFont("Leipzig"))
    page = next(engraver.engrave(parse_score(compose(5, 1), "s"), lambda _: degrader))
    expected = 20.0
    if degrader is not None:
        x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(100, W - 100, 20), np.linspace(100, H - 100, 20)))
        across = degrader.warp_points(np.stack([x, y + 20], 1))[:, 1] - degrader.warp_points(np.stack([x, y], 1))[:, 1]
        expected = float(across.mean())
    assert estimate_interline(page.image) == pytest.approx(expected, rel=0.02)


def test_the_interline_is_estimated_with_uneven_light_and_faint_lines() -> None:
    page = staff_page(16.0, height=1000, width=800, staves=5).astype(np.float32)
    light = np.linspace(0.35, 1.0, 800, dtype=np.float32)
    dim = (255 - (255 - page) * 0.3) * light  # lines are three tenths as dark as ink
    assert estimate_interline(dim.astype(np.uint8)) == pytest.approx(16.0, rel=0.01)


def test_the_interline_of_a_rotated_page_is_the_vertical_distance() -> None:
    page = staff_page(20.0, height=1000, width=1000, staves=4)
    matrix = cv2.getRotationMatrix2D((500, 500), 8.0, 1.0)
    turned = np.asarray(cv2.warpAffine(page, matrix, (1000, 1000), borderValue=255), dtype=np.uint8)
    assert estimate_interline(turned) == pytest.approx(20.0 / np.cos(np.deg2rad(8.0)), rel=0.02)


def test_the_most_frequent_distance_is_returned() -> None:
    page = staff_page(20.0, height=1200, width=800, staves=4)
    page[-220:] = 255
    page[1040:1200] = staff_page(12.0, height=160, width=800, staves=1)  # a staff of small notes
    assert estimate_interline(page) == pytest.approx(20.0, rel=0.01)


def test_pages_without_staves_have_no_interline() -> None:
    rng = np.random.default_rng(0)
    assert estimate_interline(np.full((800, 600), 255, dtype=np.uint8)) is None
    assert estimate_interline(np.zeros((800, 600), dtype=np.uint8)) is None
    assert estimate_interline(np.full((3, 3), 255, dtype=np.uint8)) is None
    assert estimate_interline(rng.integers(0, 256, (900, 700), dtype=np.uint8)) is None
    cloud = cv2.resize(rng.integers(0, 256, (40, 30), dtype=np.uint8), (900, 1200), interpolation=cv2.INTER_CUBIC)
    assert estimate_interline(np.asarray(cloud, dtype=np.uint8)) is None
    positions = [(int(x), int(y), 12) for x, y in rng.integers(20, 560, (300, 2))]
    assert estimate_interline(with_squares(np.full((800, 600), 255, dtype=np.uint8), positions)) is None


@pytest.mark.parametrize("shape", [(900, 300), (3000, 4000)])
def test_grain_of_any_size_has_no_interline(shape: tuple[int, int]) -> None:
    grain = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    assert estimate_interline(grain) is None


def test_scattered_candidates_are_not_a_staff_and_aligned_ones_are() -> None:
    """Use five short lines, five pixels apart: at random heights as in grain, then at one height."""
    rng = np.random.default_rng(0)
    for scattered, expected in ((True, None), (False, 5.0)):
        page = np.full((1000, 4000), 255, dtype=np.uint8)
        for x in range(0, 3960, 20):
            y = int(rng.integers(20, 960)) if scattered else 500
            for line in range(5):
                page[y + 5 * line : y + 5 * line + 2, x : x + 20] = 0
        assert estimate_interline(page) == (None if expected is None else pytest.approx(expected, rel=0.01))


def test_ink_is_darker_than_its_surroundings() -> None:
    page = staff_page(20.0)
    dark = staff_ink(page)
    np.testing.assert_array_equal(dark[:, 300], page[:, 300] < 128)
    assert not staff_ink(np.linspace(0, 255, 600, dtype=np.float32).astype(np.uint8)[None].repeat(400, 0)).any()
