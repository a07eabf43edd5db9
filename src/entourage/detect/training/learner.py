"""What a step looks at: windows cut out and disguised on the device, and the detector's losses on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.detect.models.model import WatershedDetector
from entourage.detect.training.margin import Margins, paste_margins
from entourage.detect.training.views import ViewOptions, disguise
from entourage.detect.training.windows import Windows, cut_windows

_CELL = 8  # pixels of a cell of the mask of what is not looked at


@dataclass(frozen=True)
class Draw:
    """What is drawn for a step, before any pixel is touched.

    Attributes:
        windows: where, and the symbols there.
        margins: crops on top of them, if any.
        ink: the windows' pixels, where the pages do not fit on the device; else None.
    """

    windows: Windows
    margins: Margins | None = None
    ink: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """What the detector is given: pages (b, 1, h, w), their objects, and what is not looked at (b, h, w)."""

    ink: Tensor
    boxes: Tensor
    labels: Tensor
    image: Tensor
    ignore: Tensor


def cut(draw: Draw, pixels: Tensor, height: int, width: int) -> Tensor:
    """The ink of a draw, shape (b, 1, height, width), on the device of the pixels."""
    ink = cut_windows(pixels, draw.windows, height, width)
    return ink if draw.margins is None else paste_margins(ink, pixels, draw.margins)


def cut_early(draw: Draw, pixels: Tensor, device: torch.device, height: int, width: int) -> Draw:
    """The draw as it is where the pages are on the device of training; otherwise with its ink, cut where they are."""
    if pixels.device.type == device.type:
        return draw
    return Draw(draw.windows, None, cut(draw, pixels, height, width))


@torch.no_grad()
def make_batch(draw: Draw, pixels: Tensor, height: int, width: int, view: ViewOptions | None) -> Batch:
    """All pixels of a step, on the device.

    Args:
        draw: on the device.
        pixels: `Sheets.pixels`, on the same device unless the draw has its ink already.
        height, width: of a window.
        view: how windows are disguised; None leaves them as they are.
    """
    ink = cut(draw, pixels, height, width) if draw.ink is None else draw.ink
    if view is not None:
        ink = disguise(ink, view)
    windows = draw.windows
    ignore = hidden_mask(windows.hidden, windows.hidden_image, (len(ink), height, width))
    ink = ink.contiguous(memory_format=torch.channels_last)
    return Batch(ink, windows.boxes, windows.labels, windows.image, ignore)


def hidden_mask(boxes: Tensor, image: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Where centres of symbols lie that can mostly not be seen, and some pixels around: (b, h, w) bool."""
    batch, height, width = shape
    rows, columns = -(-height // _CELL), -(-width // _CELL)
    cell = ((boxes[:, :2] + boxes[:, 2:]) / (2 * _CELL)).long()  # (n, 2) x, y
    at = (image * rows + cell[:, 1].clamp(0, rows - 1)) * columns + cell[:, 0].clamp(0, columns - 1)
    mask = torch.zeros(batch * rows * columns, device=boxes.device).index_fill_(0, at, 1.0)
    mask = F.max_pool2d(mask.view(batch, 1, rows, columns), 3, 1, 1)
    return F.interpolate(mask, scale_factor=_CELL, mode="nearest")[:, 0, :height, :width] > 0


class Learner(nn.Module):
    """The detector as the loop calls it: one batch in, its losses out.

    Args:
        detector: is trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Energy, class and box loss."""
        return self.detector.losses(batch.ink, batch.boxes, batch.labels, batch.image, batch.ignore)
