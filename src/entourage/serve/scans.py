"""Scans in tiles of several resolutions, decoded by the guarded reader and encoded again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import cv2
import numpy as np

from entourage.detect.preprocessing.reading import GrayImage, read_page

TILE = 512  # pixels
MAX_LEVEL = 6  # level k is reduced by 2^k
_OPEN_PAGES = 3  # kept in memory
_CACHED_TILES = 600
_QUALITY = 78


class Scans:
    """The pages of a score as pictures.

    Args:
        sources: file and page of each scan, such as "scan.tif#2"; None: the page has none that may be shown.
    """

    def __init__(self, sources: list[str | None]) -> None:
        self.sources = sources
        self._pages: OrderedDict[int, GrayImage] = OrderedDict()
        self._tiles: OrderedDict[tuple[int, int, int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def tile(self, page: int, level: int, column: int, row: int) -> bytes:
        """Return a tile as JPEG.

        Args:
            page: page, from 0.
            level: the page is reduced by 2^level.
            column, row: place of the tile, from 0, in tiles of `TILE` reduced pixels.

        Raises:
            ValueError: there is no such tile, or the scan cannot be read.
        """
        key = (page, level, column, row)
        with self._lock:
            if key not in self._tiles:
                self._tiles[key] = self._encode(*key)
                while len(self._tiles) > _CACHED_TILES:
                    self._tiles.popitem(last=False)
            self._tiles.move_to_end(key)
            return self._tiles[key]

    def _encode(self, page: int, level: int, column: int, row: int) -> bytes:
        if not 0 <= level <= MAX_LEVEL:
            raise ValueError(f"level: is {level}; expected 0 to {MAX_LEVEL}")
        side = TILE << level
        part = self._page(page)[row * side : (row + 1) * side, column * side : (column + 1) * side]
        if not part.size:
            raise ValueError(f"tile: {column}, {row} of level {level} does not exist; expected one of the page")
        height, width = (max(1, -(-size >> level)) for size in part.shape)
        small = cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA) if level else part
        return bytes(cv2.imencode(".jpg", np.asarray(small), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    def _page(self, page: int) -> GrayImage:
        source = self.sources[page] if 0 <= page < len(self.sources) else None
        if source is None:
            raise ValueError(f"page: {page} has no scan that may be shown; expected one of the reading")
        if page not in self._pages:
            self._pages[page] = read_page(source)
            while len(self._pages) > _OPEN_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(page)
        return self._pages[page]


def confirmed_source(source: str, folders: list[Path]) -> str | None:
    """Return the file of a scan if it may be shown: one within the folders, by its path or by its name.

    Args:
        source: file and page of the scan, as recorded.
        folders: folders whose pages may be shown, or files.
    """
    path, separator, number = source.rpartition("#")
    if not (separator and number.isdigit()):
        path, separator, number = source, "", ""
    for folder in folders:
        root = folder.resolve()
        candidates = [Path(path), root / Path(path).name, root]
        for candidate in candidates:
            resolved = candidate.resolve()
            if resolved.is_file() and (resolved == root or root in resolved.parents):
                return f"{resolved}{separator}{number}"
    return None
