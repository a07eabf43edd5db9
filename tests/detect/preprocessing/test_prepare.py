from __future__ import annotations

import numpy as np
import pytest
from tests.detect.synthetic import staff_page

from entourage.detect.options import InferenceOptions
from entourage.detect.preprocessing import prepare
from entourage.detect.preprocessing.page_geometry import Rotation
from entourage.detect.preprocessing.prepare import prepare_page, to_working_scale


def test_pages_are_scaled_to_ten_pixels_between_staff_lines() -> None:
    page = staff_page(20.0, 800, 600)
    assert to_working_scale(page, 20.0).shape == (400, 300)
    assert to_working_scale(page, 5.0).shape == (1600, 1200)
    np.testing.assert_array_equal(to_working_scale(page, 10.0), page)
    prepared = prepare_page(page, InferenceOptions())
    assert prepared.page.shape == (800, 600)
    assert prepared.rotation is None
    assert prepared.message == ""


def test_large_pages_are_measured_on_a_smaller_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    page = staff_page(20.0, 800, 600)
    full = prepare_page(page, InferenceOptions())
    monkeypatch.setattr(prepare, "MEASURED_PIXELS", 200_000)
    small, factor = prepare.shrink_for_measuring(page)
    assert small.size <= 201_000
    assert factor == pytest.approx((480_000 / 200_000) ** 0.5)
    prepared = prepare_page(page, InferenceOptions())
    assert prepared.interline == pytest.approx(full.interline, rel=0.005)
    assert prepared.image is not None
    assert prepared.image.shape == pytest.approx((400, 300), abs=2)  # scaled from the page, not from its smaller copy
    rotated = prepare_page(Rotation.from_angle(12.0, (800, 600)).apply(page), InferenceOptions())
    assert rotated.interline == pytest.approx(20.0, rel=0.02)


@pytest.mark.parametrize(("interline", "message"), [(5.0, "staff lines are 20.0 pixels apart, not 5"), (22.0, "")])
def test_an_interline_that_differs_from_the_measured_one_gives_a_warning(interline: float, message: str) -> None:
    prepared = prepare_page(staff_page(20.0, 800, 600), InferenceOptions(interline=interline))
    assert (prepared.interline, prepared.message) == (interline, message)
    blank = prepare_page(np.full((80, 60), 255, np.uint8), InferenceOptions(interline=interline))
    assert (blank.interline, blank.message) == (interline, "")


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"untiled_pixels": -5}, "untiled_pixels is -5; expected 0 pixels or more"),
        ({"tile_size": 0}, "tile_size is 0; expected 1 pixel or more"),
        ({"tile_overlap": -1}, "tile_overlap is -1; expected 0 pixels or more"),
        ({"max_skew": float("nan")}, "max_skew is nan; expected 0 degrees or more, or None"),
        ({"max_skew": -1.0}, "max_skew is -1.0; expected 0 degrees or more, or None"),
    ],
)
def test_invalid_options_raise(wrong: dict[str, float], line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}$"):
        InferenceOptions(**wrong)  # type: ignore[arg-type]
    InferenceOptions(untiled_pixels=0, tile_size=1, tile_overlap=0, max_skew=0.0)


def test_a_page_that_would_be_too_large_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "MAX_WORKING_PIXELS", 10_000)
    with pytest.raises(ValueError, match="enlarged to 200 x 200; expected at most 0 megapixels"):
        to_working_scale(np.zeros((100, 100), dtype=np.uint8), 5.0)


@pytest.mark.parametrize("shape", [(3, 5000), (5000, 3), (1, 1)])
def test_a_strip_of_any_size_has_no_staves(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (0, 255):
        assert prepare_page(np.full(shape, value, dtype=np.uint8), InferenceOptions()).message == "no staves found"
    monkeypatch.setattr(prepare, "MEASURED_PIXELS", 100)
    assert min(prepare.shrink_for_measuring(np.zeros(shape, dtype=np.uint8))[0].shape) == 1


@pytest.mark.parametrize("contrast", [0.1, 0.2, 0.35, 1.0])
def test_staff_lines_may_be_paler_than_beams(contrast: float) -> None:
    """Staff lines have a fraction of the contrast of thick beams below them, as on photographs."""
    page = 255 - (255 - staff_page(20.0, height=1200, width=900, staves=5)) * contrast
    for k, y in enumerate(range(20, 1180, 87)):
        page[y : y + 12, 60 + 31 * k : 260 + 31 * k] = 0
    prepared = prepare_page(page.astype(np.uint8), InferenceOptions())
    assert prepared.interline == pytest.approx(20.0, rel=0.02)


def test_grain_has_no_staves_at_any_contrast() -> None:
    grain = np.random.default_rng(0).normal(200, 12, (900, 700)).clip(0, 255).astype(np.uint8)
    assert prepare_page(grain, InferenceOptions()).interline is None
