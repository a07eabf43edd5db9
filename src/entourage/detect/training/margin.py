"""Crops of rare symbols in the top margin of a window, with their targets (chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.training.sheets import Sheets
from entourage.detect.training.windows import WindowDrawer, WindowOptions, Windows, cut_windows

CROP_WIDTH, CROP_HEIGHT = 65, 40  # pixels at the working interline: the 130 x 80 of the thesis at twice that
RARE = 0.01  # classes with a smaller share of all symbols are rare


@dataclass(frozen=True)
class Margins:
    """The crops that go on top of the windows of a batch, `crops` a window, window by window.

    Attributes:
        cuts: where they come from.
        crops: how many a window has.
    """

    cuts: Windows
    crops: int


class MarginDrawer:
    """Draws crops of rare symbols and puts their symbols in the place of what they cover.

    Args:
        sheets: where the crops come from.
        window: the windows they are pasted into.
        crops: how many, side by side; the thesis has 12.

    Raises:
        ValueError: so many do not fit side by side, or no symbol is rare and small enough.
    """

    def __init__(self, sheets: Sheets, window: WindowOptions, crops: int = 12) -> None:
        if crops < 1 or crops * CROP_WIDTH > window.width or window.height <= CROP_HEIGHT:
            raise ValueError(
                f"{crops} crops of {CROP_WIDTH} x {CROP_HEIGHT} do not fit into the margin of a window of"
                f" {window.width} x {window.height}"
            )
        self.sheets = sheets
        self.window = window
        self.crops = crops
        self._drawer = WindowDrawer(sheets, replace(window, width=CROP_WIDTH, height=CROP_HEIGHT, visible=1.0))
        size = sheets.boxes[:, 2:] - sheets.boxes[:, :2]
        fits = (size[:, 0] <= CROP_WIDTH - 2) & (size[:, 1] <= CROP_HEIGHT - 2)
        rare = sheets.counts() < RARE * len(sheets.labels)
        rows = np.flatnonzero(fits & rare[sheets.labels - 1])
        if len(rows) == 0:
            raise ValueError(f"no class with less than {RARE:.0%} of the symbols fits into a crop; expected some")
        order = rows[np.argsort(sheets.labels[rows], kind="stable")]
        self._rows = order
        self._classes, self._first, self._counts = np.unique(
            sheets.labels[order], return_index=True, return_counts=True
        )

    def draw(self, windows: Windows, rng: np.random.Generator) -> tuple[Windows, Margins]:
        """Crops for a batch, and the batch with their symbols in it."""
        batch = len(windows.start)
        rows = self._symbols(batch * self.crops, rng)
        pages = self.sheets.page_of(rows)
        centre = (self.sheets.boxes[rows, :2] + self.sheets.boxes[rows, 2:]) / 2
        corner = np.round(centre - np.array([CROP_WIDTH, CROP_HEIGHT]) / 2).astype(np.float64)
        cuts = self._drawer.cut(pages, corner, np.ones_like(corner))
        return self._covered(windows, cuts), Margins(cuts, self.crops)

    def _symbols(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Symbols of rare classes, every class as often."""
        drawn = rng.integers(len(self._classes), size=count)
        which = (rng.random(count) * self._counts[drawn]).astype(np.int64)
        return np.asarray(self._rows[self._first[drawn] + which])

    def _covered(self, windows: Windows, cuts: Windows) -> Windows:
        """The symbols of the windows that can still be seen, and those of the crops."""
        step = self.window.width // self.crops

        def moved(boxes: Tensor, crop: Tensor) -> tuple[Tensor, Tensor]:
            left = (crop % self.crops * step).float()
            return boxes + torch.stack([left, torch.zeros_like(left)] * 2, dim=1), crop // self.crops

        added, added_image = moved(cuts.boxes, cuts.image)
        doubtful, doubtful_image = moved(cuts.hidden, cuts.hidden_image)
        height = windows.boxes[:, 3] - windows.boxes[:, 1]
        seen = windows.boxes[:, 3] - windows.boxes[:, 1].clamp(min=CROP_HEIGHT)
        clear = seen >= self.window.visible * height
        partly = ~clear & (windows.boxes[:, 3] > CROP_HEIGHT)
        return replace(
            windows,
            boxes=torch.cat([windows.boxes[clear], added]),
            labels=torch.cat([windows.labels[clear], cuts.labels]),
            image=torch.cat([windows.image[clear], added_image]),
            hidden=torch.cat([windows.hidden, windows.boxes[partly], doubtful]),
            hidden_image=torch.cat([windows.hidden_image, windows.image[partly], doubtful_image]),
        )


def paste_margins(ink: Tensor, pixels: Tensor, margins: Margins) -> Tensor:
    """The windows with the crops on top; the rest of the margin is paper.

    Args:
        ink: shape (b, 1, h, w).
        pixels: `Sheets.pixels`, on the same device.
        margins: as drawn, on the same device.
    """
    batch, _, _, width = ink.shape
    step = width // margins.crops
    crops = cut_windows(pixels, margins.cuts, CROP_HEIGHT, CROP_WIDTH)
    row = crops.view(batch, margins.crops, CROP_HEIGHT, CROP_WIDTH)
    row = torch.nn.functional.pad(row, (0, step - CROP_WIDTH)).transpose(1, 2)  # (b, 40, crops, step)
    strip = row.reshape(batch, 1, CROP_HEIGHT, margins.crops * step)
    strip = torch.nn.functional.pad(strip, (0, width - margins.crops * step))
    return torch.cat([strip, ink[:, :, CROP_HEIGHT:]], dim=2)
