"""Image files: PNG is written fast, with the resolution in it; grey values are read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

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


def read_grey(path: Path) -> NDArray[np.uint8]:
    """The grey values of an image, shape (height, width).

    Raises:
        ValueError: there is no such file, or it is no image.
    """
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) if path.is_file() else None  # a pipe would block
    if image is None:
        raise ValueError(f"{path} cannot be read as an image; expected that of a page")
    return np.asarray(image, dtype=np.uint8)
