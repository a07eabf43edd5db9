"""What a classifier is trained on: views of images, few of them with a label.

Images as users give them: decoded, in one array or in a list, or as files.
"""

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
    """Images and the labels that are known.

    Attributes:
        views: what the network sees of the images, n of them.
        codes: the class of each image as a number from 0, shape (n,); -1 where it is unknown.
        n_classes: how many classes there are, m.
    """

    views: Views
    codes: NDArray[np.int64]
    n_classes: int

    def __post_init__(self) -> None:
        n = len(self.views)
        if self.codes.shape != (n,):
            raise ValueError(f"labels of shape {self.codes.shape} for {n} images; expected ({n},)")
        if self.codes.dtype != np.int64:
            raise ValueError(f"labels of type {self.codes.dtype}; expected int64")
        if self.n_classes < 2:
            raise ValueError(f"{self.n_classes} classes; expected two or more to tell apart")
        if n and not UNLABELLED <= self.codes.min() <= self.codes.max() < self.n_classes:
            expected = f"expected -1 (unlabelled) to {self.n_classes - 1}"
            raise ValueError(f"labels from {self.codes.min()} to {self.codes.max()}; {expected}")
        if not (self.codes >= 0).any():
            raise ValueError("no image is labelled; expected at least one")

    def __len__(self) -> int:
        return len(self.views)

    @property
    def labelled(self) -> NDArray[np.int64]:
        """Positions of the labelled images, ascending."""
        return np.flatnonzero(self.codes >= 0)


PixelArray = NDArray[np.uint8]
Images = PixelArray | Sequence[PixelArray] | Sequence[str | Path]


_EXPECTED = "expected an array of pixels or a list of image files (of a folder: `entourage.data.list_images`)"


def files_or_pixels(images: Images) -> list[Path] | PixelArray:
    """The paths where images are named, one array where they are decoded; an empty list names none.

    Raises:
        TypeError: it is a single path, a folder's above all, or no list; or the list holds paths and something else.
        ValueError: decoded images differ in shape.
    """
    if isinstance(images, str | Path):
        raise TypeError(f"images is the path {str(images)!r}; {_EXPECTED}")
    if isinstance(images, np.ndarray):
        return images
    if not isinstance(images, Sequence) and not hasattr(images, "__array__"):  # as tensors and pandas' columns have
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
    """PixelArray images as one array, which is checked where it is used.

    Raises:
        ValueError: there are none in the list, or they differ in shape.
        TypeError: it is no list, or one of files.
    """
    if isinstance(images, np.ndarray):
        return images
    if not hasattr(images, "__len__"):
        raise TypeError(f"images is {images!r}; expected decoded images, uint8 (n, h, w, 3), or a list of them")
    if any(isinstance(image, str | Path) for image in images):
        raise TypeError("images are files; expected decoded ones, as `entourage.data.decode_pixels` gives them")
    arrays = [np.asarray(image) for image in images]
    if not arrays:
        raise ValueError("there are no images; expected at least one")
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            mismatch = (
                f"{array.shape}; expected {arrays[0].shape} as of the first, or files that are decoded to one size"
            )
            raise ValueError(f"image {index} has shape {mismatch}")
    return np.stack(arrays)
