"""How far apart the staff lines of a page are, which is the measure of everything on it.

Down sampled columns, five thin dark runs at equal distances are taken for a staff if ink goes on to their left and
right. Thousands of such witnesses agree on the distance to a fraction of a pixel. Grain and fur have a few as well,
here and there; those of staves stand beside others at the same height.

Pages that lie askew: by how much, turned upright, and boxes turned back.

A network that was trained on slightly turned pages needs no help with those; beyond that the page is turned first.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import scaled_size

GrayImage = NDArray[np.uint8]
Mask = NDArray[np.bool_]

COLUMNS = 400  # that are looked at
MIN_INTERLINE, MAX_INTERLINE = 4.0, 250.0  # pixels between lines
_LINES = 5
_MAX_UNEVENNESS = 0.12  # how much the four distances of a staff may differ, as a share of them
_MAX_THICKNESS = 0.45  # a line takes less than this share of the distance
_MIN_CONTINUATION = 0.8  # share of the places beside a staff's lines that hold ink
_MIN_CANDIDATES = 0.04  # staves seen, as a share of the columns
_MIN_SUPPORT = 0.05  # share of the witnesses beside which there is another; in grain none is
_MIN_SUPPORT_TINY = 0.5  # the same where lines are less than `_TINY` pixels apart, as grain is
_TINY = 6.0
_SUPPORT_DISTANCE = 10.0  # pixels to its left and right: further than `staff_ink` smooths
_MAX_SLOPE = 0.27  # of lines, at most
_MIN_CONTRAST = 6.0  # grey values by which a line is darker than what surrounds it


def staff_ink(image: GrayImage) -> Mask:
    """Which pixels are darker than their surroundings, whatever the light; lines that lie across are favoured.

    Args:
        image: grey, dark ink on light paper, shape (h, w).
    """
    smooth = cv2.blur(image, (9, 1)).astype(np.float32)  # along the lines: grain goes, lines stay
    side = max(25, min(image.shape) // 30) | 1
    darker = cv2.blur(smooth, (side, side)) - smooth
    strong = float(np.percentile(darker[::3, ::3], 99.5))
    return np.asarray(darker > max(0.35 * strong, _MIN_CONTRAST))


def estimate_interline(image: GrayImage, ink: Mask | None = None) -> float | None:
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
    if height < _LINES * MIN_INTERLINE or width < 8:
        return None
    columns = np.unique(np.linspace(2, width - 3, min(COLUMNS, width)).astype(np.int64))
    spacing, positions = _candidate_staves(dark, columns)
    if len(spacing) == 0:
        return None
    on = _continues(dark, positions, columns, spacing)
    spacing, positions = spacing[on], positions[on]
    if len(spacing) < max(8.0, _MIN_CANDIDATES * len(columns)):
        return None
    bins = np.round(np.log(spacing) / 0.02).astype(np.int64)  # steps of 2 %
    votes = np.bincount(bins - bins.min())
    votes = np.convolve(votes, [1, 2, 3, 2, 1], mode="same")
    mode = np.exp(0.02 * (int(votes.argmax()) + bins.min()))
    near = np.abs(spacing / mode - 1) < 0.06
    supported = _supported_fraction(positions[near], columns, mode, height)
    if supported < (_MIN_SUPPORT_TINY if mode < _TINY else _MIN_SUPPORT):
        return None
    return float(np.mean(spacing[near]))


def _candidate_staves(dark: Mask, columns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
    even = np.ptp(gaps, axis=1) <= np.maximum(_MAX_UNEVENNESS * mean, 1.0)
    good = (
        same
        & even
        & (mean >= MIN_INTERLINE)
        & (mean <= MAX_INTERLINE)
        & (widths.max(axis=1) < np.maximum(_MAX_THICKNESS * mean, 2.5))
    )
    return mean[good], np.column_stack([where[: len(mean)], heights])[good]


def _continues(
    dark: Mask, positions: NDArray[np.float64], columns: NDArray[np.int64], spacing: NDArray[np.float64]
) -> Mask:
    """Whether ink goes on at both sides of a chain, half an interline and one interline away."""
    height, width = dark.shape
    grown = cv2.dilate(dark.astype(np.uint8), np.ones((3, 1), dtype=np.uint8))  # a line may rise or fall a little
    if float(np.median(spacing)) > 12:
        grown = cv2.dilate(grown, np.ones((3, 1), dtype=np.uint8))
    x = columns[positions[:, 0].astype(np.int64)]
    y = np.clip(positions[:, 1:].astype(np.int64), 0, height - 1)  # (n, 5)
    fraction = np.zeros(len(x))
    steps = (-1.0, -0.5, 0.5, 1.0)
    for step in steps:
        column = np.clip(np.round(x + step * np.maximum(spacing, 8.0)), 0, width - 1).astype(np.int64)
        fraction += grown[y, column[:, None]].mean(axis=1) / len(steps)
    return np.asarray(fraction >= _MIN_CONTINUATION)


def _supported_fraction(
    positions: NDArray[np.float64], columns: NDArray[np.int64], spacing: float, height: int
) -> float:
    """The share of witnesses that have another to the left or right of them, at the height that a line may have there.

    Args:
        places: column's number and five heights, (n, 6).
        columns: where they are.
        spacing: interline.
        height: of the page.
    """
    step = (columns[-1] - columns[0]) / max(len(columns) - 1, 1)
    apart = int(np.ceil(_SUPPORT_DISTANCE / step))
    reach = spacing / 2 + _MAX_SLOPE * apart * step
    stride = height + 2 * reach + 1  # from column to column, when all stand one below the other
    middle = positions[:, 3]
    ordered = np.sort(positions[:, 0] * stride + middle)
    supported = np.zeros(len(positions), dtype=np.bool_)
    for side in (-apart, apart):
        at = (positions[:, 0] + side) * stride + middle
        supported |= np.searchsorted(ordered, at - reach) < np.searchsorted(ordered, at + reach)
    return float(supported.mean())


MAX_ANGLE = 20.0  # degrees to either side that are tried
_SKEW_IMAGE_SIZE = 700  # pixels of the longer side at which it is looked


@dataclass(frozen=True)
class Rotation:
    """A page turned by an angle about its middle, on a sheet that holds all of it.

    Attributes:
        matrix: from the page to the turned page, shape (2, 3).
        size: width and height of the turned page.
        angle: degrees, counter-clockwise.
    """

    matrix: NDArray[np.float64]
    size: tuple[int, int]
    angle: float

    @classmethod
    def from_angle(cls, angle: float, shape: tuple[int, int]) -> Rotation:
        """The turn of a page of shape (h, w) by so many degrees counter-clockwise."""
        height, width = shape
        cosine, sine = abs(np.cos(np.deg2rad(angle))), abs(np.sin(np.deg2rad(angle)))
        size = (int(np.ceil(width * cosine + height * sine)), int(np.ceil(width * sine + height * cosine)))
        # Pixel centres have whole numbers for OpenCV, but lie at halves for boxes.
        found = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
        matrix = np.asarray(found, dtype=np.float64)
        matrix[:, 2] += np.array([(size[0] - width) / 2, (size[1] - height) / 2])
        return cls(matrix, size, angle)

    def apply(self, image: GrayImage) -> GrayImage:
        """The turned page; what lies beyond its edges is paper."""
        paper = float(np.percentile(image[::8, ::8], 90))
        turned = cv2.warpAffine(image, self.matrix, self.size, flags=cv2.INTER_LINEAR, borderValue=paper)
        return np.asarray(turned, dtype=np.uint8)

    def invert(self, found: Detections) -> Detections:
        """Boxes on the turned page as boxes on the page itself.

        An upright box around a turned box would be too large. These are boxes around the turned ovals that fill the
        boxes, which is exact for thin lines and for noteheads.
        """
        inverse = cv2.invertAffineTransform(self.matrix)
        linear = torch.from_numpy(inverse[:, :2])
        shift = torch.from_numpy(inverse[:, 2])
        boxes = found.boxes.double()
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2 - 0.5
        halves = (boxes[:, 2:] - boxes[:, :2]) / 2
        moved = centres @ linear.T + shift + 0.5  # (n, 2)
        around = ((halves**2) @ (linear**2).T).sqrt()  # (n, 2)
        turned = torch.cat([moved - around, moved + around], dim=1).float()
        return Detections(turned, found.labels, found.scores, found.classes)


def estimate_skew(ink: Mask) -> float:
    """By how many degrees a page has to be turned counter-clockwise for its lines to lie level.

    The sums of ink along rows differ most when staff lines lie along the rows. Angles up to 20 degrees are tried, first
    coarsely, then finely.

    Args:
        ink: `staff_ink` of the page, shape (h, w).

    Returns:
        The angle; 0 on a page without ink.
    """
    scale = _SKEW_IMAGE_SIZE / max(ink.shape)
    found = cv2.resize(ink.astype(np.float32), scaled_size(ink.shape, scale), interpolation=cv2.INTER_AREA)
    small = np.asarray(found, dtype=np.float32)
    if min(small.shape) < 8 or float(small.max()) <= 0:
        return 0.0
    best = 0.0
    for span, step in ((MAX_ANGLE, 1.0), (1.0, 0.25), (0.25, 0.05)):
        angles = best + np.arange(-span, span + step / 2, step)
        sharp = [_sharpness(small, float(angle)) for angle in angles]
        best = float(np.clip(angles[int(np.argmax(sharp))], -MAX_ANGLE, MAX_ANGLE))
    return best


def _sharpness(ink: NDArray[np.float32], angle: float) -> float:
    height, width = ink.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
    rows = cv2.warpAffine(ink, matrix, (width, height), flags=cv2.INTER_LINEAR).sum(axis=1)
    return float(np.square(np.diff(rows)).sum())
