"""Pages made ready for the network: measured by their staff lines, straightened and scaled, with the way back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from entourage.detect.options import INTERLINE, InferenceOptions
from entourage.detect.preprocessing.page_geometry import Rotation, estimate_interline, estimate_skew, staff_ink
from entourage.detect.preprocessing.reading import GrayImage, read_page, scaled_size, to_grayscale

MAX_WORKING_PIXELS = 100_000_000  # at the network's scale; a page of printed music has one or two million
MEASURED_PIXELS = 16_000_000  # larger pages are measured on a smaller copy; A4 at 400 dpi has 15 million
NO_STAVES = "no staves found"
_INTERLINE_TOLERANCE = 1.25  # times as far apart as they look, lines may be told to be without a word
SIDEWAYS = "the page lies on its side: turn it by 90 degrees"

ImageInput = NDArray[np.generic] | Image.Image | str | Path


@dataclass(frozen=True)
class PreparedPage:
    """A page as the network wants it, and the way back.

    Attributes:
        image: grey, staff lines `INTERLINE` pixels apart, shape (h, w); None: there is nothing to look for.
        page: as it was given, grey, shape (H, W).
        interline: pixels between its staff lines, or None.
        angle: degrees by which it lies askew.
        rotation: the rotation that straightened it, or None.
        seconds: it took so far.
        message: warning for the user, or "".
    """

    image: GrayImage | None
    page: GrayImage
    interline: float | None
    angle: float
    rotation: Rotation | None
    seconds: float
    message: str = ""


def prepare_page(image: ImageInput, options: InferenceOptions) -> PreparedPage:
    """Reads, measures, straightens and scales a page.

    Raises:
        ValueError: it is no image, cannot be read or is too large.
    """
    start = time.perf_counter()
    page = read_page(image) if isinstance(image, str | Path) else to_grayscale(image)
    straight, seen, angle, rotation = _measure(page, options)
    interline = options.interline or seen
    if interline is None:
        upright = estimate_interline(np.ascontiguousarray(shrink_for_measuring(page)[0].T)) is not None
        return PreparedPage(
            None, page, None, angle, None, time.perf_counter() - start, SIDEWAYS if upright else NO_STAVES
        )
    working = to_working_scale(straight, interline)
    parts = (
        "" if rotation is None else f"straightened by {rotation.angle:.1f} degrees",
        _interline_warning(interline, seen),
    )
    message = "; ".join(part for part in parts if part)
    return PreparedPage(working, page, interline, angle, rotation, time.perf_counter() - start, message)


def _interline_warning(interline: float, seen: float | None) -> str:
    """What is to be said where staff lines look otherwise than was told, or nothing."""
    if seen is None or seen / _INTERLINE_TOLERANCE <= interline <= seen * _INTERLINE_TOLERANCE:
        return ""
    return f"its staff lines look {seen:.1f} pixels apart, not {interline:g}"


def shrink_for_measuring(page: GrayImage) -> tuple[GrayImage, float]:
    """A page as small as is enough to be measured, and by what it was divided; most pages are as they were."""
    factor = (page.size / MEASURED_PIXELS) ** 0.5
    if factor <= 1:
        return page, 1.0
    small = cv2.resize(page, scaled_size(page.shape, 1 / factor), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8), factor


def to_working_scale(page: GrayImage, interline: float) -> GrayImage:
    """A page in the size that the network was trained for, its staff lines `INTERLINE` pixels apart.

    Raises:
        ValueError: it would be too large.
    """
    factor = INTERLINE / interline
    size = scaled_size(page.shape, factor)
    if size[0] * size[1] > MAX_WORKING_PIXELS:
        raise ValueError(
            f"page of {page.shape[1]} x {page.shape[0]} pixels with staff lines {interline:.1f} apart would be "
            f"enlarged to {size[0]} x {size[1]}; expected at most {MAX_WORKING_PIXELS / 1e6:.0f} megapixels"
        )
    if size == (page.shape[1], page.shape[0]):
        return page
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(page, size, interpolation=how), dtype=np.uint8)


def _measure(page: GrayImage, options: InferenceOptions) -> tuple[GrayImage, float | None, float, Rotation | None]:
    """The page, straightened if it has to be, its interline as it looks, how askew it lies, and how it was turned."""
    small, factor = shrink_for_measuring(page)
    ink = staff_ink(small)
    known, widest = options.interline, options.max_skew
    angle = estimate_skew(ink)
    if widest is not None and abs(angle) > widest:
        rotation = Rotation.from_angle(angle, (page.shape[0], page.shape[1]))
        straight = rotation.apply(page)
        measured, by = shrink_for_measuring(straight)
        interline = _times(estimate_interline(measured), by)
        if known or interline is not None:  # else the angle was that of something else than staves
            return straight, interline, angle, rotation
    return page, _times(estimate_interline(small, ink), factor), angle, None


def _times(interline: float | None, factor: float) -> float | None:
    return None if interline is None else interline * factor
