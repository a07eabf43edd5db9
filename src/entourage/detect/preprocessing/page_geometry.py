"""Geometry of pages: distance between staff lines, skew, and rotation of pages and boxes.

In sampled columns, five thin dark runs at equal distances are a candidate for a staff if the ink continues to their
left and right. Thousands of candidates determine the distance to a fraction of a pixel. Grain and textures yield a few
scattered candidates, too; those of staves have neighbours at the same height.

The network is trained on slightly rotated pages, so only pages with a larger skew need to be rotated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import GrayImage, scaled_size

Mask = NDArray[np.bool_]

COLUMNS = 400  # sampled columns
MIN_INTERLINE, MAX_INTERLINE = 4.0, 250.0  # pixels between staff lines
_LINES = 5
_MAX_UNEVENNESS = 0.12  # maximum difference of the four distances of a staff, as a fraction of their mean
_MAX_THICKNESS = 0.45  # maximum thickness of a line, as a fraction of the distance
_MIN_CONTINUATION = 0.8  # minimum fraction of ink at the points to the left and right of a staff's lines
_MIN_CANDIDATES = 0.04  # minimum number of candidates, as a fraction of the columns
_MIN_SUPPORT = 0.05  # minimum fraction of candidates with a neighbour; in grain, the fraction is about 0
_MIN_SUPPORT_TINY = 0.5  # the same for lines less than `_TINY` pixels apart, the scale of grain
_TINY = 6.0
_SUPPORT_DISTANCE = 10.0  # pixels between neighbours: more than the range over which `staff_ink` smooths
_MAX_SLOPE = 0.27  # maximum slope of staff lines
INK_CONTRASTS = (0.35, 0.2, 0.1, 0.05)  # of ink, tried in turn: on photographs, thin lines are paler than beams
_MIN_CONTRAST = 6.0  # minimum difference in grey values between a line and its surroundings


def staff_ink(image: GrayImage, contrast: float = INK_CONTRASTS[0]) -> Mask:
    """Return the pixels darker than their surroundings, at any illumination; horizontal lines are enhanced.

    Args:
        image: grayscale, dark ink on light paper, shape (h, w).
        contrast: minimum contrast of ink, as a fraction of that of the darkest strokes of the page.

    Returns:
        Mask of the ink, shape (h, w).
    """
    smooth = cv2.blur(image, (9, 1)).astype(np.float32)  # along the lines: removes grain
    side = max(25, min(image.shape) // 30) | 1
    darker = cv2.blur(smooth, (side, side)) - smooth
    strong = float(np.percentile(darker[::3, ::3], 99.5))
    return np.asarray(darker > max(contrast * strong, _MIN_CONTRAST))


def estimate_interline(image: GrayImage, ink: Mask | None = None) -> float | None:
    """Estimate the distance between staff lines.

    Args:
        image: grayscale, dark ink on light paper, shape (h, w); staves are horizontal up to 15 degrees.
        ink: `staff_ink` of the image; None: it is computed.

    Returns:
        The most frequent distance on the page in pixels, from line centre to line centre; None without staves. Costs
        one pass over the image.
    """
    dark = staff_ink(image) if ink is None else ink
    height, width = dark.shape
    if height < _LINES * MIN_INTERLINE or width < 8:
        return None
    columns = np.unique(np.linspace(2, width - 3, min(COLUMNS, width)).astype(np.int64))
    spacing, positions = _candidate_staves(dark, columns)
    if len(spacing) == 0:
        return None
    continued = _continues(dark, positions, columns, spacing)
    spacing, positions = spacing[continued], positions[continued]
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
    """Return candidates: distance of their lines, shape (n,); column number and five heights, shape (n, 6)."""
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
    """Return a mask of the candidates with ink on both sides, half an interline and one interline away."""
    height, width = dark.shape
    grown = cv2.dilate(dark.astype(np.uint8), np.ones((3, 1), dtype=np.uint8))  # lines may have a slope
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
    """Return the fraction of candidates with another to the left or right, at a height within the maximum slope.

    Args:
        positions: column number and five heights, shape (n, 6).
        columns: x coordinates of the columns.
        spacing: distance between staff lines.
        height: height of the page.
    """
    step = (columns[-1] - columns[0]) / max(len(columns) - 1, 1)
    apart = int(np.ceil(_SUPPORT_DISTANCE / step))
    reach = spacing / 2 + _MAX_SLOPE * apart * step
    stride = height + 2 * reach + 1  # offset between columns on one common axis
    middle = positions[:, 3]
    ordered = np.sort(positions[:, 0] * stride + middle)
    supported = np.zeros(len(positions), dtype=np.bool_)
    for side in (-apart, apart):
        expected = (positions[:, 0] + side) * stride + middle
        supported |= np.searchsorted(ordered, expected - reach) < np.searchsorted(ordered, expected + reach)
    return float(supported.mean())


MAX_ANGLE = 20.0  # maximum skew in degrees
_SKEW_IMAGE_SIZE = 700  # longer side, in pixels, of the image in which the skew is estimated


@dataclass(frozen=True)
class Rotation:
    """Rotation of a page about its centre, onto a canvas that contains all of it.

    Attributes:
        matrix: affine map from the page to the rotated page, shape (2, 3).
        size: width and height of the rotated page.
        angle: degrees, counter-clockwise.
    """

    matrix: NDArray[np.float64]
    size: tuple[int, int]
    angle: float

    @classmethod
    def from_angle(cls, angle: float, shape: tuple[int, int]) -> Rotation:
        """Return the rotation of a page of shape (h, w) by an angle in degrees, counter-clockwise."""
        height, width = shape
        cosine, sine = abs(np.cos(np.deg2rad(angle))), abs(np.sin(np.deg2rad(angle)))
        size = (int(np.ceil(width * cosine + height * sine)), int(np.ceil(width * sine + height * cosine)))
        # Pixel centres have integer coordinates in OpenCV, half-integer ones in boxes.
        centre = ((width - 1) / 2, (height - 1) / 2)
        matrix = np.asarray(cv2.getRotationMatrix2D(centre, angle, 1.0), dtype=np.float64)
        matrix[:, 2] += np.array([(size[0] - width) / 2, (size[1] - height) / 2])
        return cls(matrix, size, angle)

    def apply(self, image: GrayImage) -> GrayImage:
        """Rotate a page, shape (h, w); the corners are filled with the colour of the paper."""
        paper = float(np.percentile(image[::8, ::8], 90))
        rotated = cv2.warpAffine(image, self.matrix, self.size, flags=cv2.INTER_LINEAR, borderValue=paper)
        return np.asarray(rotated, dtype=np.uint8)

    def invert(self, detections: Detections) -> Detections:
        """Map boxes from the rotated page to the original page.

        The axis-aligned box around a rotated box would be too large. The result is the box around the rotated ellipse
        inscribed in the box, which is exact for thin lines and for noteheads.
        """
        inverse = cv2.invertAffineTransform(self.matrix)
        linear = torch.from_numpy(inverse[:, :2])
        shift = torch.from_numpy(inverse[:, 2])
        boxes = detections.boxes.double()
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2 - 0.5
        halves = (boxes[:, 2:] - boxes[:, :2]) / 2
        moved = centres @ linear.T + shift + 0.5  # (n, 2)
        extent = ((halves**2) @ (linear**2).T).sqrt()  # (n, 2)
        return replace(detections, boxes=torch.cat([moved - extent, moved + extent], dim=1).float())


def estimate_skew(ink: Mask) -> float:
    """Estimate the angle by which a page must be rotated counter-clockwise for its staff lines to be horizontal.

    Adjacent row sums of the ink differ most when staff lines are parallel to the rows. Angles of up to 20 degrees are
    searched from coarse to fine.

    Args:
        ink: `staff_ink` of the page, shape (h, w).

    Returns:
        The angle in degrees; 0 on a page without ink.
    """
    size = scaled_size(ink.shape, _SKEW_IMAGE_SIZE / max(ink.shape))
    small = np.asarray(cv2.resize(ink.astype(np.float32), size, interpolation=cv2.INTER_AREA), dtype=np.float32)
    if min(small.shape) < 8 or float(small.max()) <= 0:
        return 0.0
    half = cv2.resize(small, scaled_size(small.shape, 0.5), interpolation=cv2.INTER_AREA).astype(np.float32)
    best = 0.0
    for image, span, step in ((half, MAX_ANGLE, 1.0), (small, 1.0, 0.25), (small, 0.25, 0.05)):
        angles = best + np.arange(-span, span + step / 2, step)
        sharpness = [_sharpness(image, float(angle)) for angle in angles]
        best = float(np.clip(angles[int(np.argmax(sharpness))], -MAX_ANGLE, MAX_ANGLE))
    return best


def _sharpness(ink: NDArray[np.float32], angle: float) -> float:
    """Return the sum of squared differences between adjacent row sums of the rotated ink."""
    height, width = ink.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
    rows = cv2.warpAffine(ink, matrix, (width, height), flags=cv2.INTER_LINEAR).sum(axis=1)
    return float(np.square(np.diff(rows)).sum())
