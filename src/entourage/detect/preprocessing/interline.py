"""How far apart the staff lines of a page are, which is the measure of everything on it.

Down sampled columns, five thin dark runs at equal distances are taken for a staff if ink goes on to their left and
right. Thousands of such witnesses agree on the distance to a fraction of a pixel. Grain and fur have a few as well,
here and there; those of staves stand beside others at the same height.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.uint8]
Mask = NDArray[np.bool_]

COLUMNS = 400  # that are looked at
LEAST, MOST = 4.0, 250.0  # pixels between lines
_LINES = 5
_UNEVEN = 0.12  # how much the four distances of a staff may differ, as a share of them
_THICK = 0.45  # a line takes less than this share of the distance
_GOES_ON = 0.8  # share of the places beside a staff's lines that hold ink
_WITNESSES = 0.04  # staves seen, as a share of the columns
_BACKED = 0.05  # share of the witnesses beside which there is another; in grain none is
_BACKED_TINY = 0.5  # the same where lines are less than `_TINY` pixels apart, as grain is
_TINY = 6.0
_BESIDE = 10.0  # pixels to its left and right: further than `staff_ink` smooths
_SLOPE = 0.27  # of lines, at most
_FAINT = 6.0  # grey values by which a line is darker than what surrounds it


def staff_ink(image: Grey) -> Mask:
    """Which pixels are darker than their surroundings, whatever the light; lines that lie across are favoured.

    Args:
        image: grey, dark ink on light paper, shape (h, w).
    """
    smooth = cv2.blur(image, (9, 1)).astype(np.float32)  # along the lines: grain goes, lines stay
    side = max(25, min(image.shape) // 30) | 1
    darker = cv2.blur(smooth, (side, side)) - smooth
    strong = float(np.percentile(darker[::3, ::3], 99.5))
    return np.asarray(darker > max(0.35 * strong, _FAINT))


def estimate_interline(image: Grey, ink: Mask | None = None) -> float | None:
    """Pixels from one staff line to the next.

    Args:
        image: grey, dark ink on light paper, shape (h, w); staves lie across, turned by 15 degrees at most.
        ink: `staff_ink` of the image, if it is known already.

    Returns:
        The commonest distance on the page, from the mean of line to mean of line, or None if there are no staves.
        Costs one pass over the image.
    """
    dark = staff_ink(image) if ink is None else ink
    height, width = dark.shape
    if height < _LINES * LEAST or width < 8:
        return None
    columns = np.unique(np.linspace(2, width - 3, min(COLUMNS, width)).astype(np.int64))
    spacing, places = _chains(dark, columns)
    if len(spacing) == 0:
        return None
    on = _goes_on(dark, places, columns, spacing)
    spacing, places = spacing[on], places[on]
    if len(spacing) < max(8.0, _WITNESSES * len(columns)):
        return None
    bins = np.round(np.log(spacing) / 0.02).astype(np.int64)  # steps of 2 %
    votes = np.bincount(bins - bins.min())
    votes = np.convolve(votes, [1, 2, 3, 2, 1], mode="same")
    mode = np.exp(0.02 * (int(votes.argmax()) + bins.min()))
    near = np.abs(spacing / mode - 1) < 0.06
    backed = _backed(places[near], columns, mode, height)
    if backed < (_BACKED_TINY if mode < _TINY else _BACKED):
        return None
    return float(np.mean(spacing[near]))


def _chains(dark: Mask, columns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Five thin runs at equal distances: the distance (n,), and the column's number and five heights (n, 6)."""
    padded = np.zeros((len(columns), dark.shape[0] + 2), dtype=np.int8)
    padded[:, 1:-1] = dark[:, columns].T
    change = np.diff(padded, axis=1)  # (columns, h + 1)
    where, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    centres, thick = (starts + ends) / 2, ends - starts
    if len(centres) < _LINES:
        return np.empty(0), np.empty((0, 1 + _LINES))
    heights = np.stack([centres[i : len(centres) - _LINES + 1 + i] for i in range(_LINES)], axis=1)  # (n, 5)
    widths = np.stack([thick[i : len(thick) - _LINES + 1 + i] for i in range(_LINES)], axis=1)
    gaps = np.diff(heights, axis=1)  # (n, 4)
    mean = (heights[:, -1] - heights[:, 0]) / (_LINES - 1)
    same = where[: len(mean)] == where[_LINES - 1 :]
    even = np.ptp(gaps, axis=1) <= np.maximum(_UNEVEN * mean, 1.0)
    good = same & even & (mean >= LEAST) & (mean <= MOST) & (widths.max(axis=1) < np.maximum(_THICK * mean, 2.5))
    return mean[good], np.column_stack([where[: len(mean)], heights])[good]


def _goes_on(dark: Mask, places: NDArray[np.float64], columns: NDArray[np.int64], spacing: NDArray[np.float64]) -> Mask:
    """Whether ink goes on at both sides of a chain, half an interline and one interline away."""
    height, width = dark.shape
    grown = cv2.dilate(dark.astype(np.uint8), np.ones((3, 1), dtype=np.uint8))  # a line may rise or fall a little
    if float(np.median(spacing)) > 12:
        grown = cv2.dilate(grown, np.ones((3, 1), dtype=np.uint8))
    x = columns[places[:, 0].astype(np.int64)]
    y = np.clip(places[:, 1:].astype(np.int64), 0, height - 1)  # (n, 5)
    share = np.zeros(len(x))
    steps = (-1.0, -0.5, 0.5, 1.0)
    for step in steps:
        beside = np.clip(np.round(x + step * np.maximum(spacing, 8.0)), 0, width - 1).astype(np.int64)
        share += grown[y, beside[:, None]].mean(axis=1) / len(steps)
    return np.asarray(share >= _GOES_ON)


def _backed(places: NDArray[np.float64], columns: NDArray[np.int64], spacing: float, height: int) -> float:
    """The share of witnesses that have another to the left or right of them, at the height that a line may have there.

    Args:
        places: column's number and five heights, (n, 6).
        columns: where they are.
        spacing: interline.
        height: of the page.
    """
    step = (columns[-1] - columns[0]) / max(len(columns) - 1, 1)
    apart = int(np.ceil(_BESIDE / step))
    reach = spacing / 2 + _SLOPE * apart * step
    stride = height + 2 * reach + 1  # from column to column, when all stand one below the other
    middle = places[:, 3]
    standing = np.sort(places[:, 0] * stride + middle)
    backed = np.zeros(len(places), dtype=np.bool_)
    for side in (-apart, apart):
        at = (places[:, 0] + side) * stride + middle
        backed |= np.searchsorted(standing, at - reach) < np.searchsorted(standing, at + reach)
    return float(backed.mean())
