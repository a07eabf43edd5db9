import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.engrave.render.encoding import encode_png, read_grey


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_png_files_contain_image_and_resolution(dtype: type) -> None:
    image = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (30, 20)).astype(dtype)
    opened = Image.open(io.BytesIO(encode_png(image, dpi=400)))
    np.testing.assert_array_equal(np.asarray(opened), image)
    assert opened.info["dpi"] == pytest.approx((400, 400), abs=0.1)


def test_an_empty_image_raises_an_error() -> None:
    with pytest.raises(Exception, match=r"PNG|encode|image"):
        encode_png(np.zeros((0, 0), dtype=np.uint8), 400)


def test_grey_values_are_read_as_written(tmp_path: Path) -> None:
    image = np.arange(200, dtype=np.uint8).reshape(10, 20)
    (tmp_path / "a.png").write_bytes(encode_png(image, 400))
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), image)
    (tmp_path / "b.png").write_bytes(b"not an image")
    for name in ("b.png", "none.png"):
        with pytest.raises(ValueError, match=rf"{name}: .*; expected that of a page"):
            read_grey(tmp_path / name)
