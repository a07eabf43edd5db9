"""Pictures of items, decoded by the guarded reader and encoded again: no byte of a file reaches the page."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from entourage.data.media import read_image

SIDES = (96, 192, 1280)  # longer sides that can be requested
CACHE_BYTES = 2**26
_QUALITY = 82


class Pictures:
    """Re-encoded pictures of items, the latest ones in memory.

    Args:
        paths: the image file of each item.
        cache_bytes: maximum size of all stored pictures.
    """

    def __init__(self, paths: Sequence[Path], cache_bytes: int = CACHE_BYTES) -> None:
        self.paths, self.cache_bytes = paths, cache_bytes
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, index: int, side: int) -> bytes:
        """Return a picture as JPEG.

        Args:
            index: index of the item.
            side: longer side in pixels, one of `SIDES`; smaller pictures are not enlarged.

        Raises:
            ValueError: the item or the side does not exist, or the file can no longer be read.
        """
        if not 0 <= index < len(self.paths):
            raise ValueError(f"item: is {index}; expected an index from 0 to {len(self.paths) - 1}")
        if side not in SIDES:
            raise ValueError(f"side: is {side}; expected one of {', '.join(map(str, SIDES))}")
        with self._lock:
            if (index, side) in self._cache:
                self._cache.move_to_end((index, side))
                return self._cache[index, side]
        encoded = _encode(read_image(self.paths[index], shorter_side=side), side)
        with self._lock:
            self._size += len(encoded) - len(self._cache.pop((index, side), b""))
            self._cache[index, side] = encoded
            while self._size > self.cache_bytes and self._cache:
                self._size -= len(self._cache.popitem(last=False)[1])
        return encoded


def _encode(image: Image.Image, side: int) -> bytes:
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()
