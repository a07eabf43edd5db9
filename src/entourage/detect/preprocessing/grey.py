"""Any image as a page in grey: 8 bits, dark ink on light paper, not larger than any sheet of paper needs."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from entourage.data.images import UnreadableImageError

MOST_PIXELS = 80_000_000  # A3 at 600 dpi has 70 million
_SMALL = 1_000  # pixels of the longer side at which it is looked whether ink is light

Grey = NDArray[np.uint8]


def as_grey(image: NDArray[np.generic] | Image.Image) -> Grey:
    """An image in memory as a grey page, dark ink on light paper.

    Args:
        image: a PIL image, which is turned as its camera says, or an array of 8 bits, shape (h, w), (h, w, 1),
            (h, w, 3) RGB or (h, w, 4) RGBA.

    Returns:
        Shape (h, w).

    Raises:
        ValueError: it is neither.
    """
    if isinstance(image, Image.Image):
        return grey_picture("image", image)
    shape = getattr(image, "shape", ())
    if getattr(image, "dtype", None) != np.uint8 or len(shape) not in (2, 3):
        what = f"{type(image).__name__} of {getattr(image, 'dtype', 'no dtype')}, shape {tuple(shape)}"
        raise ValueError(f"image is {what}; expected uint8 of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)")
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise ValueError(f"image has {image.shape[2]} channels; expected 1, 3 or 4")
    if image.size == 0:
        raise ValueError(f"image has the shape {image.shape}; expected one pixel at least")
    check_size("image", (image.shape[1], image.shape[0]))
    if image.ndim == 3:
        return dark_on_light(_to_grey(Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)))
    return dark_on_light(np.ascontiguousarray(image, dtype=np.uint8))


def grey_picture(name: str | Path, image: Image.Image) -> Grey:
    """A PIL image as a grey page, turned as its camera says.

    Args:
        name: what it is called if it is refused.
        image: is refused by its header, before it is unpacked.

    Raises:
        UnreadableImageError: it is too large.
    """
    check_size(name, image.size)
    return dark_on_light(_to_grey(ImageOps.exif_transpose(image)))


def dark_on_light(image: Grey) -> Grey:
    """The page, inverted if its ground is dark and the thin things on it are light."""
    if float(np.median(image[::4, ::4])) >= 128:
        return image
    scale = min(1.0, _SMALL / max(image.shape))
    small = cv2.resize(image, scaled_size(image.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else image
    apart = small.astype(np.int16) - cv2.medianBlur(small, 31)  # from the ground around it
    light, dark = float(apart.clip(0).mean()), float((-apart).clip(0).mean())
    return np.asarray(255 - image, dtype=np.uint8) if light > 1.5 * dark else image


def check_size(name: str | Path, size: tuple[int, int]) -> None:
    """Raises an `UnreadableImageError` if an image has more pixels, width times height, than a page may have."""
    if size[0] * size[1] > MOST_PIXELS:
        what = f"{size[0]} x {size[1]} pixels, {millions(size[0] * size[1])} megapixels"
        raise UnreadableImageError(name, f"{what}; expected at most {millions(MOST_PIXELS)}")


def scaled_size(shape: tuple[int, ...], scale: float) -> tuple[int, int]:
    """Width and height of an image of shape (h, w) at a scale; a pixel of either is left, however thin it is."""
    return max(1, round(shape[1] * scale)), max(1, round(shape[0] * scale))


def millions(pixels: int) -> str:
    """A number of pixels in megapixels, as errors tell it."""
    return f"{pixels / 1e6:.0f}"


def _to_grey(image: Image.Image) -> Grey:
    """Any mode to 8 bits of grey, the transparent parts on white."""
    if image.mode.startswith(("I", "F")):
        return _from_deep(image)
    if image.has_transparency_data:
        layered = image.convert("LA")
        grey, alpha = (np.asarray(band, dtype=np.uint16) for band in layered.split())
        return np.asarray((grey * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if image.mode == "CMYK":
        image = image.convert("RGB")
    return np.asarray(image.convert("L"), dtype=np.uint8)


def _from_deep(image: Image.Image) -> Grey:
    """16 bits, 32 bits or floating point; what lies above the usual white makes white."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    peak = float(values.max())
    usual = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    white = next((value for value in usual if peak <= value), peak)
    return np.asarray((values.clip(0, white) * (255 / white)).round(), dtype=np.uint8)
