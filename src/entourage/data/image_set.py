"""Sets of labelled images, and the sources of their pixels: encoded bytes in one array, files, or raw pixels."""

import errno
import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from entourage.data.media import UnreadableImageError, decode_image, read_image


class ImageSource(Protocol):
    """Images that are read by index and decoded at each access."""

    def __len__(self) -> int: ...

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of an encoded image in bytes, or None if it is unknown without reading the files."""
        ...

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        """Read an image as RGB, rotated according to its EXIF orientation.

        Args:
            index: index of the image, from 0.
            shorter_side: see `read_image`.

        Raises:
            UnreadableImageError: the image is missing or broken.
        """
        ...

    def content(self, index: int) -> bytes:
        """Return the bytes that are stored for an image; an OSError if its file cannot be read."""
        ...

    def state(self, index: int) -> str:
        """Return a text that changes with the file of an image, or "" if changes are detected by its content only."""
        ...

    def select(self, indices: NDArray[np.int64]) -> "ImageSource":
        """Return the images at the given indices, in this order; no image is copied."""
        ...

    def digest(self) -> str:
        """Return a short digest that differs if the images or their order differ."""
        ...


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images in memory as the concatenated bytes of image files of any format.

    Attributes:
        data: bytes of all images, shape (bytes,).
        starts: index of the first byte of each image in `data`, shape (n,).
        ends: index after the last byte of each image, shape (n,).
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of an encoded image in bytes."""
        return float((self.ends - self.starts).mean()) if len(self) else 0.0

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        """Read an image as RGB, rotated according to its EXIF orientation."""
        return decode_image(io.BytesIO(self.content(index)), f"number {index}", shorter_side)

    def content(self, index: int) -> bytes:
        """Return the encoded bytes of an image."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def state(self, index: int) -> str:
        """Return "" for every image: images in memory have no files that can change."""
        return ""

    def select(self, indices: NDArray[np.int64]) -> "EncodedImages":
        """Return the images at the given indices, in this order; no image is copied."""
        return EncodedImages(self.data, self.starts[indices], self.ends[indices])

    def digest(self) -> str:
        """Return a digest of the bytes and of the positions of the images in them."""
        return _digest(self.data, self.starts, self.ends)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images that are read from separate files.

    Attributes:
        paths: the files, n of them.
    """

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def mean_bytes(self) -> float | None:
        """None: the mean size in bytes is unknown, because it would require a `stat` of every file."""
        return None

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        """Read an image as RGB, rotated according to its EXIF orientation."""
        return read_image(self.paths[index], shorter_side=shorter_side)

    def content(self, index: int) -> bytes:
        """Return the bytes of the file of an image; an OSError if it cannot be read."""
        if not self.paths[index].is_file():  # reading a named pipe would block
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self.paths[index]))
        return self.paths[index].read_bytes()

    def state(self, index: int) -> str:
        """Return size and modification time of the file of an image; "" if it is missing."""
        try:
            state = self.paths[index].stat()
        except OSError:
            return ""
        return f"{state.st_size}\t{state.st_mtime_ns}"

    def select(self, indices: NDArray[np.int64]) -> "ImageFiles":
        """Return the images at the given indices, in this order."""
        return ImageFiles([self.paths[index] for index in indices.tolist()])

    def digest(self) -> str:
        """Return a digest of paths, sizes and modification times; reading the content of many files takes too long."""
        states = (f"{path.absolute()}\t{self.state(index) or 'missing'}" for index, path in enumerate(self.paths))
        return _digest("\n".join(states).encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, eq=False)
class RawImages:
    """Images in memory as one array of pixels.

    Attributes:
        values: RGB images of one size, shape (m, 3, height, width).
        indices: indices of the selected images in `values`, shape (n,).
    """

    values: NDArray[np.uint8]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of an encoded image in bytes: 0, because the images are not encoded."""
        return 0.0

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        """Return an image in RGB; `shorter_side` is ignored, because nothing is decoded."""
        return Image.fromarray(self.values[self.indices[index]].transpose(1, 2, 0))  # (3, h, w) -> (h, w, 3)

    def content(self, index: int) -> bytes:
        """Return the pixels of an image as bytes."""
        return np.ascontiguousarray(self.values[self.indices[index]]).tobytes()

    def state(self, index: int) -> str:
        """Return "" for every image: images in memory have no files that can change."""
        return ""

    def select(self, indices: NDArray[np.int64]) -> "RawImages":
        """Return the images at the given indices, in this order; no image is copied."""
        return RawImages(self.values, self.indices[indices])

    def digest(self) -> str:
        """Return a digest of all pixels and of the indices of the selected images."""
        return _digest(self.values, self.indices)


def _digest(*parts: NDArray[np.generic] | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = memoryview(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
        digest.update(f"{data.nbytes}:".encode())  # the length distinguishes parts with the same concatenation
        digest.update(data)
    return digest.hexdigest()


TRAIN, TEST = 0, 1


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with labels. An image is decoded at each access; `decode_pixels` decodes all images once.

    Attributes:
        name: name of the set in messages.
        source: the images, n of them.
        labels: class of each image, shape (n,), from 0.
        class_names: name of each class; a class may have no images.
        split: 0 for training and 1 for testing, shape (n,); all 0 if the data set has no official split.
        items: unique name of each image: its path below the folder of the data set, if it has one.
        sizes: width and height of the original images, shape (n, 2), or None if unknown.
        angles: rotation of the object in degrees, shape (n,), or None.
    """

    name: str
    source: ImageSource
    labels: NDArray[np.int64]
    class_names: list[str]
    split: NDArray[np.uint8]
    items: list[str]
    sizes: NDArray[np.int64] | None = None
    angles: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.source)
        _check_shape(self.name, "labels", self.labels.shape, (n,))
        _check_shape(self.name, "split", self.split.shape, (n,))
        _check_shape(self.name, "items", (len(self.items),), (n,))
        if self.sizes is not None:
            _check_shape(self.name, "sizes", self.sizes.shape, (n, 2))
        if self.angles is not None:
            _check_shape(self.name, "angles", self.angles.shape, (n,))
        _check_range(self.name, "label", self.labels, len(self.class_names) - 1)
        _check_range(self.name, "split", self.split, TEST)
        if len(set(self.items)) != n:
            (twice, times), *_ = Counter(self.items).most_common(1)
            raise ValueError(f"{self.name}: item {twice!r} occurs {times} times; expected unique items")

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int) -> Image.Image:
        """Read an image as RGB, rotated according to its EXIF orientation.

        Args:
            index: index of the image; negative indices count from the end.

        Returns:
            The image, in mode RGB.

        Raises:
            UnreadableImageError: a ValueError; the image is missing or broken.
            IndexError: the index is out of range.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.name}: image {index} of {len(self)}; expected an index below {len(self)}")
        try:
            return self.source.read(index % len(self))
        except UnreadableImageError as error:
            raise UnreadableImageError(f"{self.items[index]} of {self.name}", error.reason) from error

    def subset(self, indices: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> "ImageSet":
        """Return a set of some of the images; no image is decoded or copied.

        Args:
            indices: indices in any order, or a boolean mask of shape (n,), such as `images.split == 0`.

        Returns:
            A set with the same classes, also those without images in the subset.

        Raises:
            ValueError: an index is out of range or occurs twice, or the mask has another length.
        """
        chosen = self._indices(np.asarray(indices))  # (k,)
        return replace(
            self,
            source=self.source.select(chosen),
            labels=self.labels[chosen],
            split=self.split[chosen],
            items=[self.items[index] for index in chosen.tolist()],
            sizes=None if self.sizes is None else self.sizes[chosen],
            angles=None if self.angles is None else self.angles[chosen],
        )

    def _indices(self, indices: NDArray[np.generic]) -> NDArray[np.int64]:
        n = len(self)
        if indices.dtype == np.bool_:
            if indices.shape != (n,):
                raise ValueError(f"{self.name}: a mask of shape {indices.shape} for {n} images; expected ({n},)")
            return np.flatnonzero(indices).astype(np.int64)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(
                f"{self.name}: indices of shape {indices.shape} and type {indices.dtype}; expected a list of integers"
            )
        chosen = indices.astype(np.int64)
        if chosen.min() < 0 or chosen.max() >= n:
            raise ValueError(f"{self.name}: indices from {chosen.min()} to {chosen.max()}; expected 0 to {n - 1}")
        return chosen


def _check_shape(name: str, array: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{name}: {array} of shape {shape} for {expected[0]} images; expected {expected}")


def _check_range(name: str, key: str, values: NDArray[np.integer], highest: int) -> None:
    wrong = np.flatnonzero((values < 0) | (values > highest))
    if len(wrong):
        raise ValueError(
            f"{name}: the {key} of image {wrong[0]} is {values[wrong[0]]}; expected 0 to {highest} ({len(wrong)} such)"
        )
