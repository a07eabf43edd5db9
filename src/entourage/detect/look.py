"""Pages one after another: read, measured ahead of the network, and looked at; one that fails stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import torch

from entourage.data.images import UnreadableImageError
from entourage.detect.detector import Detector, Sight
from entourage.detect.inference.journal import Journal
from entourage.detect.preprocessing.prepare import Ready
from entourage.detect.preprocessing.read import Sheet, page_source, read_sheets
from entourage.threads import count_threads, map_ahead

_PAGE_ERRORS = (ValueError, MemoryError, torch.OutOfMemoryError, cv2.error)
_MOST_AHEAD = 4  # threads; each holds up to three pages in memory

Skip = Callable[[str, Exception], None]


def look_at_all(
    detector: Detector, journal: Journal, skip: Skip, advance: Callable[[int], None]
) -> Iterator[tuple[Path, Sheet, Sight]]:
    """The pages of a journal's files that are not done yet, and what is on them.

    Args:
        detector: finds it. Threads measure and scale ahead of a GPU.
        journal: says which files, and what of them is done.
        skip: is told of a file or page that cannot be read, and why.
        advance: is told of every file whose pages have all been read.
    """

    def prepare(page: tuple[Path, Sheet]) -> tuple[Path, Sheet, Ready | Exception]:
        try:
            return *page, detector.prepare(page[1].image)
        except _PAGE_ERRORS as error:
            return *page, error

    workers = 1 if detector.device.type == "cpu" else min(_MOST_AHEAD, count_threads(None))
    for file, sheet, ready in map_ahead(prepare, _sheets(journal, skip, advance), workers):
        try:
            if isinstance(ready, Exception):
                raise ready
            yield file, sheet, detector.see(ready)
        except _PAGE_ERRORS as error:
            skip(page_source(file, sheet.number), error)


def _sheets(journal: Journal, skip: Skip, advance: Callable[[int], None]) -> Iterator[tuple[Path, Sheet]]:
    for file in journal.files:
        done = journal.done(file)
        try:
            for sheet in () if None in done else read_sheets(file, {number for number in done if number}):
                if isinstance(sheet, UnreadableImageError):
                    skip(sheet.path, sheet)  # with the number of the page
                else:
                    yield file, sheet
        except _PAGE_ERRORS as error:
            skip(str(file), error)
        advance(1)
