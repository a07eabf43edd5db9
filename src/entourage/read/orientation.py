"""Detection of pages that lie on their side or are upside down, and conversion of boxes to pixels of the input page."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect import Detections, Detector
from entourage.detect.detector import is_upright
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.layout.lean import Lean

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UprightPage:
    """A page turned so that its music is upright, with its symbols.

    Attributes:
        prepared: the turned page at the scale of the detector; its `image` is None if no staves were found.
        symbols: detections in pixels of `prepared.image`.
        turned: degrees counter-clockwise by which the page was turned: 0, 90, 180 or 270.
        size: width and height of the input page.
        lean: lean of vertical lines that was removed from image and symbols, or None.
    """

    prepared: PreparedPage
    symbols: Detections
    turned: int
    size: tuple[int, int]
    lean: Lean | None = None

    @property
    def straight(self) -> GrayImage:
        """The turned and straightened page at the resolution of the input, shape (h, w)."""
        rotation = self.prepared.rotation
        page = self.prepared.page if rotation is None else rotation.apply(self.prepared.page)
        if self.lean is None or self.prepared.image is None:
            return page
        return self.lean.image(page, page.shape[0] / self.prepared.image.shape[0])

    def without_lean(self, lean: Lean) -> UprightPage:
        """Return the page on which the vertical lines of systems do not lean."""
        if self.prepared.image is None:
            return self
        prepared = replace(self.prepared, image=lean.image(self.prepared.image))
        return replace(self, prepared=prepared, symbols=lean.symbols(self.symbols), lean=lean)


def find_upright(detector: Detector, image: GrayImage) -> UprightPage:
    """Detect the symbols of a page, turned by 90, 180 or 270 degrees if its staves are not upright.

    The clefs show whether a page is upside down. The staves of a page on its side are found only after a quarter turn.
    The turned page is prepared again, so that the result is the same as for a page that was upright.

    Args:
        detector: the detector.
        image: grayscale, shape (h, w).

    Returns:
        The page. Costs one pass of the detector for upright pages, and up to three for others.
    """
    size = (image.shape[1], image.shape[0])
    quarters = 0
    prepared = detector.prepare(image)
    symbols, upside_down = detector.detect_raw(prepared)
    if not upside_down and not is_upright(symbols):  # beams and stems may be taken for staves of a page on its side
        sideways = detector.prepare(_turn(image, 1))
        found, sideways_down = detector.detect_raw(sideways)
        if sideways_down or is_upright(found) or (prepared.image is None and sideways.image is not None):
            quarters, prepared, symbols, upside_down = 1, sideways, found, sideways_down
    if upside_down:
        quarters += 2
        prepared = detector.prepare(_turn(image, quarters))
        symbols, upside_down = detector.detect_raw(prepared)
        if upside_down and prepared.image is not None:  # the two directions contradict each other
            symbols = Detections.empty(detector.classes)
    return UprightPage(prepared, symbols, 90 * quarters, size)


def _turn(image: GrayImage, quarters: int) -> GrayImage:
    return np.ascontiguousarray(np.rot90(image, quarters))


def to_input_boxes(boxes: Floats, page: UprightPage) -> Floats:
    """Map boxes from the prepared page to the input page.

    Args:
        boxes: x0, y0, x1, y1 in pixels of `page.prepared.image`, shape (n, 4).
        page: the page.

    Returns:
        Boxes in pixels of the input page, within its borders, shape (n, 4).

    Raises:
        ValueError: the page has no staves, and hence no scale.
    """
    if len(boxes) == 0:
        return boxes.reshape(0, 4)
    prepared = page.prepared
    if prepared.image is None:
        raise ValueError(f"boxes: the page has no staves ({prepared.message}); expected one with staves")
    if page.lean is not None:
        boxes = page.lean.invert(boxes)
    straight = prepared.page.shape if prepared.rotation is None else prepared.rotation.size[::-1]
    scale = np.array([straight[1] / prepared.image.shape[1], straight[0] / prepared.image.shape[0]] * 2)
    mapped = boxes * scale
    if prepared.rotation is not None:
        n = len(mapped)
        found = Detections(torch.from_numpy(mapped).float(), torch.ones(n, dtype=torch.int64), torch.ones(n), ("box",))
        mapped = prepared.rotation.invert(found).boxes.double().numpy()
    return _turn_back(mapped, page.turned, page.size)


def symbols_on_input(page: UprightPage) -> Detections:
    """Return the symbols of a page in pixels of the input page, in the same order."""
    boxes = to_input_boxes(page.symbols.boxes.double().numpy(), page)
    return replace(page.symbols, boxes=torch.from_numpy(boxes).float())


def _turn_back(boxes: Floats, turned: int, size: tuple[int, int]) -> Floats:
    """Map boxes from a page that was turned counter-clockwise to the page before, shape (n, 4)."""
    width, height = size
    x0, y0, x1, y1 = boxes.T
    if turned == 90:
        boxes = np.stack([width - y1, x0, width - y0, x1], axis=1)
    elif turned == 180:
        boxes = np.stack([width - x1, height - y1, width - x0, height - y0], axis=1)
    elif turned == 270:
        boxes = np.stack([y0, height - x1, y1, height - x0], axis=1)
    limits = np.array([width, height, width, height], dtype=np.float64)
    return np.clip(boxes, 0.0, limits)
