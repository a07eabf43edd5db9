from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from entourage.data.image_set import ImageFiles
from entourage.serve.pictures import Pictures


def test_pictures_are_encoded_again_and_reduced(pictures: list[Path]) -> None:
    encoded = Pictures(ImageFiles(pictures)).get(0, 96)
    with Image.open(io.BytesIO(encoded)) as image:
        assert (image.format, image.size) == ("JPEG", (96, 64))
        red, green, blue = image.getpixel((40, 30))
    assert red > 240
    assert max(green, blue) < 20


def test_files_that_are_not_images_raise(pictures: list[Path]) -> None:
    with pytest.raises(ValueError, match=r"broken\.png: not an image"):
        Pictures(ImageFiles(pictures)).get(3, 96)


@pytest.mark.parametrize(("index", "side"), [(-1, 96), (4, 96), (0, 97)])
def test_other_items_and_sides_raise(pictures: list[Path], index: int, side: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Pictures(ImageFiles(pictures)).get(index, side)


def test_the_cache_is_bounded_and_keeps_the_latest(pictures: list[Path]) -> None:
    size = len(Pictures(ImageFiles(pictures)).get(0, 96))
    cached = Pictures(ImageFiles(pictures), cache_bytes=2 * size + size // 2)
    for index in (0, 1, 2):
        cached.get(index, 96)
    pictures[0].unlink()
    pictures[2].unlink()
    assert cached.get(2, 96)
    with pytest.raises(ValueError, match=r"0\.png: no such file"):
        cached.get(0, 96)
