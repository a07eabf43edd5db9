"""Whether the symbols of a page are really there in a picture that has been laid on it."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.engrave.unbend import Grey

_MARGIN = 6  # pixels around a symbol: another in its place seldom ends where it ends
_PLAY = 2  # pixels that a symbol may be off
_ALIKE = 0.8  # correlation from which a symbol is taken for itself; in photos nearly all have 0.9 and more


def symbols_missing(rectified: Grey, page: Grey, boxes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which symbols look otherwise in the picture than on the page, or are not in it, shape (n,).

    Args:
        rectified: the picture, laid on the page, shape (height, width).
        page: the clean page, of the same shape.
        boxes: of the symbols, x0, y0, x1, y1 with the ends beyond the last pixel, shape (n, 4).
    """
    seen, drawn = (cv2.GaussianBlur(image, (0, 0), 1.0) for image in (rectified, page))
    edge = _PLAY + _MARGIN
    seen = cv2.copyMakeBorder(seen, edge, edge, edge, edge, cv2.BORDER_REPLICATE)
    drawn = cv2.copyMakeBorder(drawn, edge, edge, edge, edge, cv2.BORDER_REPLICATE)
    missing = np.zeros(len(boxes), dtype=bool)
    for k, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        symbol = drawn[y0 + _PLAY : y1 + _PLAY + 2 * _MARGIN, x0 + _PLAY : x1 + _PLAY + 2 * _MARGIN]
        around = seen[y0 : y1 + 2 * edge, x0 : x1 + 2 * edge]
        missing[k] = float(cv2.matchTemplate(around, symbol, cv2.TM_CCOEFF_NORMED).max()) < _ALIKE
    return missing
