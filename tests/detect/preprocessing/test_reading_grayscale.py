from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from tests.detect.synthetic import staff_page

from entourage.data.media import MAX_PIXELS, check_size, megapixels
from entourage.detect.preprocessing.reading import ensure_dark_on_light, pil_to_grayscale, scaled_size, to_grayscale


def test_light_ink_on_dark_background_is_inverted_and_a_dim_photo_is_not() -> None:
    page = staff_page()
    np.testing.assert_array_equal(ensure_dark_on_light(255 - page), page)
    dim = (page * 0.35).astype(np.uint8)
    np.testing.assert_array_equal(ensure_dark_on_light(dim), dim)
    black = np.zeros((50, 50), dtype=np.uint8)
    np.testing.assert_array_equal(ensure_dark_on_light(black), black)


def test_arrays_may_be_grayscale_or_colour() -> None:
    page = staff_page(height=200, staves=1)
    np.testing.assert_array_equal(to_grayscale(page), page)
    np.testing.assert_array_equal(to_grayscale(page[:, :, None]), page)
    np.testing.assert_array_equal(to_grayscale(np.repeat(page[:, :, None], 3, axis=2)), page)
    np.testing.assert_array_equal(to_grayscale(Image.fromarray(page)), page)
    for wrong in (page.astype(float), np.zeros((2, 2, 2), np.uint8), np.zeros((0, 3), np.uint8), "text"):
        with pytest.raises(ValueError, match="expected"):
            to_grayscale(wrong)  # type: ignore[arg-type]


def test_an_image_in_memory_is_rotated_according_to_exif() -> None:
    picture = Image.fromarray(np.full((40, 60), 255, dtype=np.uint8))
    exif = picture.getexif()
    exif[0x0112] = 6  # rotate by 90 degrees
    packed = io.BytesIO()
    picture.save(packed, "JPEG", exif=exif)
    assert to_grayscale(Image.open(packed)).shape == (60, 40)


def test_an_image_is_rejected_by_its_size_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    check_size("a", (MAX_PIXELS // 8000, 8000))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("the image was decoded"))
    with pytest.raises(ValueError, match="scan: 10001 x 8000 pixels, 80 megapixels; expected at most 80"):
        pil_to_grayscale("scan", Image.new("1", (10_001, 8000)))
    assert megapixels(12_400_000) == "12"


def test_a_thin_image_keeps_at_least_one_pixel_per_side() -> None:
    assert scaled_size((3, 5000), 0.1) == (500, 1)
    assert scaled_size((100, 50, 3), 1.5) == (75, 150)
    for shape in ((1, 5000), (5000, 3)):  # dark, so that a smaller copy is examined
        dark = np.zeros(shape, dtype=np.uint8)
        np.testing.assert_array_equal(ensure_dark_on_light(dark), dark)
