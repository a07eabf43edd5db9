"""Pictures of items, decoded by a reader that expects hostile files, and encoded again as JPEG for the page."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import Protocol

from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from entourage.serve.requests import query_integer

SIDES = (96, 192, 1280)  # longer sides that can be requested
CACHE_BYTES = 2**26
_QUALITY = 82


class PictureSource(Protocol):
    """Images that are read by index, such as `entourage.data.image_set.ImageFiles`."""

    def __len__(self) -> int: ...

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        """Read an image; a ValueError if it cannot be read."""
        ...


class Pictures:
    """Re-encoded pictures, the latest ones in memory.

    Args:
        source: the images.
        sides: longer sides that can be requested.
        cache_bytes: maximum size of all stored pictures.
    """

    def __init__(self, source: PictureSource, sides: tuple[int, ...] = SIDES, cache_bytes: int = CACHE_BYTES) -> None:
        self.source, self.sides, self.cache_bytes = source, sides, cache_bytes
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, index: int, side: int) -> bytes:
        """Return a picture as JPEG.

        Args:
            index: index of the item.
            side: longer side in pixels, one of `sides`; smaller pictures are not enlarged.

        Raises:
            ValueError: the item or the side does not exist, or the file can no longer be read.
        """
        if not 0 <= index < len(self.source):
            raise ValueError(f"item: is {index}; expected an index from 0 to {len(self.source) - 1}")
        if side not in self.sides:
            raise ValueError(f"side: is {side}; expected one of {', '.join(map(str, self.sides))}")
        with self._lock:
            if (index, side) in self._cache:
                self._cache.move_to_end((index, side))
                return self._cache[index, side]
        encoded = _encode(self.source.read(index, shorter_side=side), side)
        with self._lock:
            self._size += len(encoded) - len(self._cache.pop((index, side), b""))
            self._cache[index, side] = encoded
            while self._size > self.cache_bytes and self._cache:
                self._size -= len(self._cache.popitem(last=False)[1])
        return encoded


async def picture_response(pictures: Pictures | None, request: Request) -> Response:
    """Answer a request for the picture of the item in its path.

    Args:
        pictures: the pictures, or None if the items have none.
        request: has the path parameter `item` and the query parameter `side`.

    Raises:
        ValueError: there is no such picture.
    """
    if pictures is None:
        raise ValueError("picture: the items have no pictures; expected a folder of images")
    side = query_integer(request, "side", pictures.sides[1])
    encoded = await run_in_threadpool(pictures.get, request.path_params["item"], side)
    return Response(encoded, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


def _encode(image: Image.Image, side: int) -> bytes:
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()
