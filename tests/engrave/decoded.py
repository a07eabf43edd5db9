"""Decoding of masks to boolean arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entourage.engrave.render.encoding import mask_pixels


def decode_mask(counts: str, height: int, width: int) -> NDArray[np.bool_]:
    mask = np.zeros((height, width), dtype=bool)
    x, y = mask_pixels(counts, height)
    mask[y, x] = True
    return mask
