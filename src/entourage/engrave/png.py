"""PNG files: fast, grey, with the resolution in them."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np
from numpy.typing import NDArray

_HEADER = 33  # bytes of signature and IHDR


def encode_png(image: NDArray[np.uint8] | NDArray[np.uint16], dpi: float, level: int = 1) -> bytes:
    """The image as a PNG file.

    Args:
        image: shape (height, width) or, in BGR, (height, width, 3).
        dpi: the resolution that is written into it.
        level: of compression, 0 to 9; ink on white paper compresses well at any.
    """
    # Without a filter and with run lengths alone: three times faster on line art than the default, and smaller.
    flags = [cv2.IMWRITE_PNG_COMPRESSION, level, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    done, encoded = cv2.imencode(".png", image, [*flags, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE])
    if not done:
        raise ValueError(f"an image of shape {image.shape} and type {image.dtype} cannot be written as PNG")
    data = encoded.tobytes()
    per_metre = round(dpi / 0.0254)
    chunk = b"pHYs" + struct.pack(">IIB", per_metre, per_metre, 1)
    return data[:_HEADER] + struct.pack(">I", 9) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[_HEADER:]
