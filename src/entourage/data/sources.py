"""Where the pixels of an image set come from: encoded bytes in one array, files, or pixels as they are."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from entourage.data.images import decode_image, read_image


class ImageSource(Protocol):
    """Images by position, decoded when they are asked for."""

    def __len__(self) -> int: ...

    @property
    def mean_bytes(self) -> float | None:
        """Bytes of an encoded image on average, or None if only the disk knows."""
        ...

    def read(self, place: int, *, shorter_side: int | None = None) -> Image.Image:
        """One image as upright RGB.

        Args:
            place: its position, from 0.
            shorter_side: when only a small version is needed, its shorter side: see `read_image`.

        Raises:
            UnreadableImageError: it is missing or broken.
        """
        ...

    def select(self, places: NDArray[np.int64]) -> "ImageSource":
        """The images at these positions, in this order; no image is copied."""
        ...

    def digest(self) -> str:
        """A short text that is another one as soon as the images or their order differ."""
        ...


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images of any format, one after the other in memory.

    Attributes:
        data: their bytes, shape (bytes,).
        starts: where each image begins in `data`, shape (n,).
        ends: where it ends, shape (n,).
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def mean_bytes(self) -> float | None:
        """Bytes of an encoded image on average."""
        return float((self.ends - self.starts).mean()) if len(self) else 0.0

    def read(self, place: int, *, shorter_side: int | None = None) -> Image.Image:
        """One image as upright RGB."""
        data = self.data[self.starts[place] : self.ends[place]].tobytes()
        return decode_image(io.BytesIO(data), f"number {place}", shorter_side)

    def select(self, places: NDArray[np.int64]) -> "EncodedImages":
        """The images at these positions."""
        return EncodedImages(self.data, self.starts[places], self.ends[places])

    def digest(self) -> str:
        """Digest of the bytes and of where each image lies in them."""
        return _digest(self.data, self.starts, self.ends)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files.

    Attributes:
        paths: n files.
    """

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def mean_bytes(self) -> float | None:
        """Unknown without a look at every file."""
        return None

    def read(self, place: int, *, shorter_side: int | None = None) -> Image.Image:
        """One image as upright RGB."""
        return read_image(self.paths[place], shorter_side=shorter_side)

    def select(self, places: NDArray[np.int64]) -> "ImageFiles":
        """The images at these positions."""
        return ImageFiles([self.paths[place] for place in places.tolist()])

    def digest(self) -> str:
        """Digest of names, sizes and times of change: to read all that is in them takes too long for large folders."""
        return _digest("\n".join(_file_state(path) for path in self.paths).encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, eq=False)
class RawImages:
    """Pixels as they are.

    Attributes:
        values: any number of RGB images of one size, shape (m, 3, height, width).
        places: which of them are meant, shape (n,).
    """

    values: NDArray[np.uint8]
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def mean_bytes(self) -> float | None:
        """Nothing is encoded."""
        return 0.0

    def read(self, place: int, *, shorter_side: int | None = None) -> Image.Image:
        """One image; `shorter_side` saves nothing here."""
        return Image.fromarray(self.values[self.places[place]].transpose(1, 2, 0))  # (3, h, w) -> (h, w, 3)

    def select(self, places: NDArray[np.int64]) -> "RawImages":
        """The images at these positions."""
        return RawImages(self.values, self.places[places])

    def digest(self) -> str:
        """Digest of the pixels and of the selection."""
        return _digest(self.values, self.places)


def _file_state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return f"{path.absolute()}\tmissing"
    return f"{path.absolute()}\t{state.st_size}\t{state.st_mtime_ns}"


def _digest(*parts: NDArray[np.generic] | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = memoryview(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
        digest.update(f"{data.nbytes}:".encode())  # bytes at the end of one part must not pass for the next part's
        digest.update(data)
    return digest.hexdigest()
