import io

import numpy as np
import pytest
from PIL import Image

from entourage.engrave.png import encode_png


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_come_back_with_their_resolution(dtype: type) -> None:
    image = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (30, 20)).astype(dtype)
    opened = Image.open(io.BytesIO(encode_png(image, dpi=400)))
    np.testing.assert_array_equal(np.asarray(opened), image)
    assert opened.info["dpi"] == pytest.approx((400, 400), abs=0.1)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(Exception, match=r"PNG|encode|image"):
        encode_png(np.zeros((0, 0), dtype=np.uint8), 400)
