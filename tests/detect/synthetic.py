"""Synthetic pages, and a detector that needs no training: it detects black squares."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.detect.options import DecodeOptions, DetectorOptions

GrayImage = NDArray[np.uint8]


def staff_page(
    interline: float = 20.0, height: int = 800, width: int = 600, staves: int = 4, thick: int = 2
) -> GrayImage:
    """Return a white page with staves."""
    page = np.full((height, width), 255, dtype=np.uint8)
    for staff in range(staves):
        top = (staff + 0.5) * height / staves - 2 * interline
        for line in range(5):
            y = round(top + line * interline)
            page[y : y + thick, 30 : width - 30] = 0
    return page


def with_squares(page: GrayImage, places: list[tuple[int, int, int]]) -> GrayImage:
    """Return the page with black squares (x, y, side)."""
    drawn = page.copy()
    for x, y, side in places:
        drawn[y : y + side, x : x + side] = 0
    return drawn


class SquareFinder(nn.Module):
    """Replacement of a network that detects black regions at least 5 pixels wide and high."""

    classes = ("square",)
    options = replace(DetectorOptions(), decode=DecodeOptions())

    def __init__(self) -> None:
        super().__init__()
        self.network = SimpleNamespace(multiple=8)
        self.shapes: list[tuple[int, int]] = []  # of all inputs

    def fuse_batch_norm(self) -> SquareFinder:
        return self

    def objects(self, batch: Tensor, options: DecodeOptions) -> list[dict[str, Tensor]]:
        ink = (batch[0, 0].numpy() > 0.5).astype(np.uint8)
        self.shapes.append(ink.shape)
        ink = cv2.morphologyEx(ink, cv2.MORPH_OPEN, np.ones((5, 5), dtype=np.uint8))
        _, _, stats, _ = cv2.connectedComponentsWithStats(ink)
        x, y, w, h = (torch.from_numpy(stats[1:, i].astype(np.float32)) for i in range(4))
        boxes = torch.stack([x, y, x + w, y + h], dim=1)
        scores = torch.full((len(boxes),), 0.9)
        kept = scores >= options.threshold
        return [
            {"boxes": boxes[kept], "labels": torch.ones(int(kept.sum()), dtype=torch.int64), "scores": scores[kept]}
        ]
