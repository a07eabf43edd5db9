"""Pages that lie askew: by how much, turned upright, and boxes turned back.

A network that was trained on slightly turned pages needs no help with those; beyond that the page is turned first.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.grey import scaled_size
from entourage.detect.preprocessing.interline import Grey, Mask

WIDEST = 20.0  # degrees to either side that are tried
_SIDE = 700  # pixels of the longer side at which it is looked


@dataclass(frozen=True)
class Turn:
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
    def by(cls, angle: float, shape: tuple[int, int]) -> Turn:
        """The turn of a page of shape (h, w) by so many degrees counter-clockwise."""
        height, width = shape
        cosine, sine = abs(np.cos(np.deg2rad(angle))), abs(np.sin(np.deg2rad(angle)))
        size = (int(np.ceil(width * cosine + height * sine)), int(np.ceil(width * sine + height * cosine)))
        # Pixel centres have whole numbers for OpenCV, but lie at halves for boxes.
        found = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
        matrix = np.asarray(found, dtype=np.float64)
        matrix[:, 2] += np.array([(size[0] - width) / 2, (size[1] - height) / 2])
        return cls(matrix, size, angle)

    def turn(self, image: Grey) -> Grey:
        """The turned page; what lies beyond its edges is paper."""
        paper = float(np.percentile(image[::8, ::8], 90))
        turned = cv2.warpAffine(image, self.matrix, self.size, flags=cv2.INTER_LINEAR, borderValue=paper)
        return np.asarray(turned, dtype=np.uint8)

    def back(self, found: Detections) -> Detections:
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
    scale = _SIDE / max(ink.shape)
    found = cv2.resize(ink.astype(np.float32), scaled_size(ink.shape, scale), interpolation=cv2.INTER_AREA)
    small = np.asarray(found, dtype=np.float32)
    if min(small.shape) < 8 or float(small.max()) <= 0:
        return 0.0
    best = 0.0
    for span, step in ((WIDEST, 1.0), (1.0, 0.25), (0.25, 0.05)):
        angles = best + np.arange(-span, span + step / 2, step)
        sharp = [_sharpness(small, float(angle)) for angle in angles]
        best = float(np.clip(angles[int(np.argmax(sharp))], -WIDEST, WIDEST))
    return best


def _sharpness(ink: NDArray[np.float32], angle: float) -> float:
    height, width = ink.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
    rows = cv2.warpAffine(ink, matrix, (width, height), flags=cv2.INTER_LINEAR).sum(axis=1)
    return float(np.square(np.diff(rows)).sum())
