"""All pages of training at the working interline, packed one behind the other, so that windows of any page can be cut
out on the device that learns from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.evaluation.ground_truth import TruthPage
from entourage.detect.map_options import INTERLINE
from entourage.io.progress import progress_bar
from entourage.threads import count_threads, map_ahead

SHARE = 0.4  # of a GPU's free memory that pages may take; the rest belongs to the network


@dataclass
class Sheets:
    """Pages and their symbols. Numbers stay with the program; pixels may go where windows are cut, see `move`.

    Attributes:
        classes: names of the classes.
        pixels: uint8, all pages one behind the other, row by row, dark ink on light paper.
        start: int64, shape (p + 1,): where each page begins in `pixels`.
        heights, widths: int64, shape (p,).
        boxes: float32, shape (n, 4), in pixels of the page.
        labels: int64, shape (n,): classes, from 1.
        first: int64, shape (p + 1,): where each page's symbols begin in `boxes`.
    """

    classes: tuple[str, ...]
    pixels: Tensor
    start: NDArray[np.int64]
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    first: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.heights)

    def page_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The page that each of some symbols is on."""
        return np.searchsorted(self.first, rows, side="right") - 1

    def counts(self) -> NDArray[np.int64]:
        """How many symbols of each class there are, shape (classes,)."""
        return np.bincount(self.labels - 1, minlength=len(self.classes))

    def move(self, device: torch.device) -> None:
        """Takes the pixels to a GPU, if they leave most of its free memory to the network."""
        here = self.pixels.device
        if here.type == device.type and device.index in (None, here.index):
            return
        if device.type == "cuda" and self.pixels.numel() > SHARE * torch.cuda.mem_get_info(device)[0]:
            return
        self.pixels = self.pixels.to(device)

    def page(self, number: int) -> NDArray[np.uint8]:
        """A page, shape (h, w)."""
        shape = (int(self.heights[number]), int(self.widths[number]))
        return self.pixels[self.start[number] : self.start[number + 1]].cpu().numpy().reshape(shape)


def pack_sheets(
    pages: Sequence[TruthPage],
    classes: tuple[str, ...],
    *,
    interline: float = INTERLINE,
    workers: int | None = None,
    progress: bool | None = None,
) -> Sheets:
    """Reads all pages with all cores, brings them to one interline and packs them.

    Args:
        pages: with their symbols; symbols of other classes are left out.
        classes: names of the classes.
        interline: pixels between staff lines, of the packed pages.
        workers: threads; None for one a core.
        progress: show a bar; None: only on a terminal.

    Raises:
        ValueError: a page cannot be read, or no page has a symbol of the classes.
    """
    numbers = {name: number for number, name in enumerate(classes, start=1)}
    images, boxes, labels = [], [], []
    with progress_bar("Pages", len(pages), progress) as advance:
        read = map_ahead(lambda page: scaled_page(page, interline), pages, count_threads(workers))
        for page, (image, moved) in zip(pages, read, strict=True):
            known = [row for row, label in enumerate(page.labels) if label in numbers]
            images.append(image)
            boxes.append(moved[known])
            labels.append([numbers[label] for label in page.labels if label in numbers])
            advance(1)
    if not any(labels):
        raise ValueError(f"none of the {len(pages)} pages has a symbol of the {len(classes)} classes")
    return Sheets(
        classes,
        torch.from_numpy(np.concatenate([image.ravel() for image in images])),
        _offsets([image.size for image in images]),
        np.array([image.shape[0] for image in images]),
        np.array([image.shape[1] for image in images]),
        np.concatenate(boxes),
        np.concatenate([np.array(each, dtype=np.int64) for each in labels]),
        _offsets([len(each) for each in labels]),
    )


def scaled_page(page: TruthPage, interline: float = INTERLINE) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """A page brought to an interline, with its boxes."""
    image = page.image()
    height, width = image.shape
    scale = interline / page.interline
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size != (width, height):
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(image, size, interpolation=method), dtype=np.uint8)
    factors = np.array([size[0] / width, size[1] / height], dtype=np.float32)
    return image, page.boxes * np.tile(factors, 2)


def _offsets(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
