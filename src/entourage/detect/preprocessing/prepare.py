"""Preparation of pages for the network: reading, straightening and scaling by the distance between staff lines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from entourage.detect.options import INTERLINE, InferenceOptions
from entourage.detect.preprocessing.page_geometry import (
    INK_CONTRASTS,
    Rotation,
    estimate_interline,
    estimate_skew,
    staff_ink,
)
from entourage.detect.preprocessing.reading import GrayImage, read_page, scaled_size, to_grayscale

MAX_WORKING_PIXELS = 100_000_000  # at the network's scale; a page of printed music has one or two million
MEASURED_PIXELS = 16_000_000  # larger pages are measured on a smaller copy; A4 at 400 dpi has 15 million
NO_STAVES = "no staves found"
_INTERLINE_TOLERANCE = 1.25  # ratio of the given to the measured interline above which there is a warning
SIDEWAYS = "the page lies on its side: turn it by 90 degrees"

ImageInput = NDArray[np.generic] | Image.Image | str | Path


@dataclass(frozen=True)
class PreparedPage:
    """A page rescaled to the network's distance between staff lines, with the transform back to the input page.

    Attributes:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w); None: the page has no staves.
        page: the input page, grayscale, shape (H, W).
        interline: pixels between staff lines of the input page, or None.
        angle: skew of the input page in degrees.
        rotation: rotation that straightened the page, or None.
        seconds: processing time.
        message: warnings for the user, or "".
    """

    image: GrayImage | None
    page: GrayImage
    interline: float | None
    angle: float
    rotation: Rotation | None
    seconds: float
    message: str = ""


def prepare_page(image: ImageInput, options: InferenceOptions) -> PreparedPage:
    """Read a page, straighten it and scale it for the network.

    Args:
        image: a file, a PIL image or an array, as `read_page` and `to_grayscale` accept them.
        options: options of inference.

    Returns:
        The page; its `image` is None if it has no staves and `options.interline` is None.

    Raises:
        ValueError: the input is not an image, cannot be read or is too large.
    """
    start = time.perf_counter()
    page = read_page(image) if isinstance(image, str | Path) else to_grayscale(image)
    straight, measured, angle, rotation = _straighten(page, options)
    interline = options.interline or measured
    if interline is None:
        sideways = estimate_interline(np.ascontiguousarray(shrink_for_measuring(page)[0].T)) is not None
        message = SIDEWAYS if sideways else NO_STAVES
        return PreparedPage(None, page, None, angle, None, time.perf_counter() - start, message)
    working = to_working_scale(straight, interline)
    straightened = "" if rotation is None else f"straightened by {rotation.angle:.1f} degrees"
    message = "; ".join(part for part in (straightened, _interline_warning(interline, measured)) if part)
    return PreparedPage(working, page, interline, angle, rotation, time.perf_counter() - start, message)


def _interline_warning(interline: float, measured: float | None) -> str:
    """Return a warning if the given interline differs from the measured one, or ""."""
    if measured is None or measured / _INTERLINE_TOLERANCE <= interline <= measured * _INTERLINE_TOLERANCE:
        return ""
    return f"staff lines are {measured:.1f} pixels apart, not {interline:g}"


def shrink_for_measuring(page: GrayImage) -> tuple[GrayImage, float]:
    """Return a page of at most `MEASURED_PIXELS` and the factor by which it was shrunk; most pages are unchanged."""
    factor = (page.size / MEASURED_PIXELS) ** 0.5
    if factor <= 1:
        return page, 1.0
    small = cv2.resize(page, scaled_size(page.shape, 1 / factor), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8), factor


def to_working_scale(page: GrayImage, interline: float) -> GrayImage:
    """Scale a page to the size that the network is trained for, with staff lines `INTERLINE` pixels apart.

    Args:
        page: grayscale, shape (h, w).
        interline: pixels between its staff lines.

    Returns:
        The scaled page; the page itself if its size does not change.

    Raises:
        ValueError: the scaled page would be too large.
    """
    factor = INTERLINE / interline
    size = scaled_size(page.shape, factor)
    if size[0] * size[1] > MAX_WORKING_PIXELS:
        enlarged = f"staff lines {interline:.1f} apart would be enlarged to {size[0]} x {size[1]}"
        limit = f"expected at most {MAX_WORKING_PIXELS / 1e6:.0f} megapixels"
        raise ValueError(f"page of {page.shape[1]} x {page.shape[0]} pixels with {enlarged}; {limit}")
    if size == (page.shape[1], page.shape[0]):
        return page
    interpolation = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(page, size, interpolation=interpolation), dtype=np.uint8)


def _straighten(page: GrayImage, options: InferenceOptions) -> tuple[GrayImage, float | None, float, Rotation | None]:
    """Return the page (rotated if its skew exceeds `max_skew`), its measured interline, its skew and the rotation."""
    small, factor = shrink_for_measuring(page)
    ink = staff_ink(small)
    angle = estimate_skew(ink)
    if options.max_skew is not None and abs(angle) > options.max_skew:
        rotation = Rotation.from_angle(angle, (page.shape[0], page.shape[1]))
        straight = rotation.apply(page)
        interline = _measure(*shrink_for_measuring(straight))
        if options.interline or interline is not None:  # without staves, the angle has no meaning
            return straight, interline, angle, rotation
    return page, _measure(small, factor, ink), angle, None


def _measure(small: GrayImage, factor: float, ink: NDArray[np.bool_] | None = None) -> float | None:
    """Return the interline of a page, measured on a copy that is smaller by `factor`; faint lines are sought last."""
    for contrast in INK_CONTRASTS:
        usable = ink if ink is not None and contrast == INK_CONTRASTS[0] else staff_ink(small, contrast)
        if (interline := estimate_interline(small, usable)) is not None:
            return interline * factor
    return None
