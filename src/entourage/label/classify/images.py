"""Images as users give them: decoded, in one array or in a list, or as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Decoded = NDArray[np.uint8]
Images = Decoded | Sequence[Decoded] | Sequence[str | Path]


def named_files(images: Images) -> list[Path] | None:
    """The files, where images are named rather than decoded; otherwise None.

    Raises:
        TypeError: a single path was given.
    """
    if isinstance(images, str | Path):
        raise TypeError(f"images is {str(images)!r}; expected a list of image files, or decoded images")
    if isinstance(images, np.ndarray) or not hasattr(images, "__len__"):
        return None
    if not len(images) or not isinstance(images[0], str | Path):
        return None
    return [Path(str(image)) for image in images]


def stacked(images: Images) -> Decoded:
    """Decoded images as one array, which is checked where it is used.

    Raises:
        ValueError: there are none in the list, or they differ in shape.
        TypeError: it is no list.
    """
    if isinstance(images, np.ndarray):
        return images
    if not hasattr(images, "__len__"):
        raise TypeError(f"images is {images!r}; expected decoded images, uint8 (n, h, w, 3), or a list of them")
    arrays = [np.asarray(image) for image in images]
    if not arrays:
        raise ValueError("there are no images; expected at least one")
    for place, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            shapes = f"{array.shape}; expected {arrays[0].shape} as of the first, or files that are decoded to one size"
            raise ValueError(f"image {place} has shape {shapes}")
    return np.stack(arrays)
