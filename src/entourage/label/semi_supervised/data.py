"""Data of semi-supervised learning: views of images and a few labels; conversion of image arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.label.semi_supervised.views import Views

UNLABELLED = -1


@dataclass(frozen=True, eq=False)
class SemiSupervisedData:
    """Views of n images, and the labels of some of them.

    Attributes:
        views: views of the n images, the inputs of the network.
        codes: class index of each image, shape (n,), int64; -1 where unlabelled.
        n_classes: number of classes, m.
    """

    views: Views
    codes: NDArray[np.int64]
    n_classes: int

    def __post_init__(self) -> None:
        n = len(self.views)
        if self.codes.shape != (n,):
            raise ValueError(f"codes has shape {self.codes.shape} for {n} images; expected ({n},)")
        if self.codes.dtype != np.int64:
            raise ValueError(f"codes has type {self.codes.dtype}; expected int64")
        if self.n_classes < 2:
            raise ValueError(f"n_classes is {self.n_classes}; expected two or more")
        if n and not UNLABELLED <= self.codes.min() <= self.codes.max() < self.n_classes:
            expected = f"expected -1 (unlabelled) to {self.n_classes - 1}"
            raise ValueError(f"codes has values from {self.codes.min()} to {self.codes.max()}; {expected}")
        if not (self.codes >= 0).any():
            raise ValueError("codes: no image is labelled; expected at least one")

    def __len__(self) -> int:
        return len(self.views)

    @property
    def labelled(self) -> NDArray[np.int64]:
        """Indices of the labelled images, ascending."""
        return np.flatnonzero(self.codes >= 0)


PixelArray = NDArray[np.uint8]
Images = PixelArray | Sequence[PixelArray] | Sequence[str | Path]


_EXPECTED = "expected an array of pixels or a list of image files (of a folder: `entourage.data.media.list_images`)"


def files_or_pixels(images: Images) -> list[Path] | PixelArray:
    """Return image files as a list of paths, and decoded images as one array; an empty list has no files.

    Raises:
        TypeError: `images` is a single path or not a sequence, or mixes paths and other types.
        ValueError: decoded images differ in shape.
    """
    if isinstance(images, str | Path):
        raise TypeError(f"images is the path {str(images)!r}; {_EXPECTED}")
    if isinstance(images, np.ndarray):
        return images
    if not isinstance(images, Sequence) and not hasattr(images, "__array__"):  # tensors and pandas objects have it
        raise TypeError(f"images is a {type(images).__name__}; {_EXPECTED}")
    items: list[Any] = list(images)
    is_path = [isinstance(image, str | Path) for image in items]
    if items and not any(is_path):
        return stack_images(items)
    if not all(is_path):
        index = is_path.index(False)
        raise TypeError(f"images holds a {type(items[index]).__name__} at {index}; {_EXPECTED}")
    return [Path(str(image)) for image in items]


def stack_images(images: Images) -> PixelArray:
    """Return decoded images as one array; `ImageBank` validates its shape and type.

    Raises:
        ValueError: the list is empty, or the images differ in shape.
        TypeError: `images` is not a list of arrays.
    """
    if isinstance(images, np.ndarray):
        return images
    if not hasattr(images, "__len__"):
        raise TypeError(f"images is {images!r}; expected decoded images, uint8 (n, h, w, 3), or a list of them")
    if any(isinstance(image, str | Path) for image in images):
        raise TypeError("images has files; expected decoded images, see `entourage.data.pixels.decode_pixels`")
    arrays = [np.asarray(image) for image in images]
    if not arrays:
        raise ValueError("images is empty; expected at least one")
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            expected = f"expected {arrays[0].shape} like image 0, or image files, which are decoded to one size"
            raise ValueError(f"images: image {index} has shape {array.shape}; {expected}")
    return np.stack(arrays)
