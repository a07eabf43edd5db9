"""Windows of pages: which are drawn, rare symbols first, and how they are cut out and scaled on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.training.sheets import Sheets

_ROOM = 2  # pixels around a window that interpolation may ask for
_MOST = 0.25  # the largest change of scale there is room for, as a logarithm


@dataclass(frozen=True)
class WindowOptions:
    """How windows are drawn.

    A page is about 950 pixels wide and windows are nearly as wide, so that what spans a page is seen whole.
    """

    height: int = 512
    width: int = 960
    rare: float = 0.5  # share of the windows that are drawn around a symbol, whose class is drawn first
    common: int = 1000  # classes with so many symbols or more are drawn equally often, rarer ones by the square root
    plain: float = 0.4  # share of the windows that are neither scaled nor moved by fractions of a pixel
    zoom: float = 0.07  # standard deviation of the logarithm of the scale
    stretch: float = 0.02  # the same of the ratio of width to height
    most: float = 0.22  # the largest change of scale, as a logarithm
    visible: float = 0.6  # symbols of which less can be seen are neither taught nor called background

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 32:
            raise ValueError(f"a window is {self.height} x {self.width} pixels; expected at least 32 x 32")
        if not 0 <= self.most <= _MOST:
            raise ValueError(f"most is {self.most}; expected a change of scale in [0, {_MOST}]")
        for name in ("rare", "plain", "visible"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share in [0, 1]")


@dataclass(frozen=True)
class Windows:
    """A batch of windows and the symbols in them.

    Attributes:
        start, heights, widths: int64, shape (b,): of the windows' pages.
        corner: float32, shape (b, 2): x, y of the upper left corner on the page.
        zoom: float32, shape (b, 2): pixels of the window for a pixel of the page, across and down.
        boxes: float32, shape (n, 4), in pixels of the window.
        labels: int64, shape (n,), from 1.
        image: int64, shape (n,): which window.
        hidden: float32, shape (k, 4): boxes of symbols that are mostly cut off.
        hidden_image: int64, shape (k,).
    """

    start: Tensor
    heights: Tensor
    widths: Tensor
    corner: Tensor
    zoom: Tensor
    boxes: Tensor
    labels: Tensor
    image: Tensor
    hidden: Tensor
    hidden_image: Tensor


class WindowDrawer:
    """Draws windows of pages; all of it with numpy, in the threads that load.

    Args:
        sheets: the pages.
        options: how.
    """

    def __init__(self, sheets: Sheets, options: WindowOptions) -> None:
        self.sheets = sheets
        self.options = options
        order = np.argsort(sheets.labels, kind="stable")
        counts = sheets.counts()
        self._rows = order  # symbols by class
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._counts = counts
        weights = np.sqrt(np.minimum(counts, options.common))
        self._weights = weights / weights.sum()

    def draw(self, windows: int, rng: np.random.Generator) -> Windows:
        """A batch."""
        sheets, options = self.sheets, self.options
        pages = rng.integers(len(sheets), size=windows)
        around = rng.random(windows) < options.rare
        symbols = self.symbols(windows, rng)
        pages = np.where(around, sheets.page_of(symbols), pages)
        plain = rng.random(windows) < options.plain
        zoom = self._zoom(plain, rng)
        corner = self._corners(pages, zoom, np.where(around, symbols, -1), rng)
        corner = np.where(plain[:, None], np.round(corner), corner)
        return self.cut(pages, corner, zoom)

    def cut(self, pages: NDArray[np.int64], corner: NDArray[np.float64], zoom: NDArray[np.float64]) -> Windows:
        """Windows at given places, with the symbols whose centres are inside."""
        sheets, options = self.sheets, self.options
        sizes = sheets.first[pages + 1] - sheets.first[pages]
        image = np.repeat(np.arange(len(pages)), sizes)
        rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + sheets.first[pages][image]
        boxes = (sheets.boxes[rows] - np.tile(corner, 2)[image]) * np.tile(zoom, 2)[image]
        size = np.array([options.width, options.height], dtype=np.float32)
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centre >= 0) & (centre < size)).all(axis=1)
        boxes, image, labels = boxes[inside].astype(np.float32), image[inside], sheets.labels[rows][inside]
        seen = (np.clip(boxes[:, 2:], 0, size) - np.clip(boxes[:, :2], 0, size)).prod(axis=1)
        whole = seen >= options.visible * (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        return Windows(
            start=torch.from_numpy(sheets.start[pages]),
            heights=torch.from_numpy(sheets.heights[pages]),
            widths=torch.from_numpy(sheets.widths[pages]),
            corner=torch.from_numpy(corner.astype(np.float32)),
            zoom=torch.from_numpy(zoom.astype(np.float32)),
            boxes=torch.from_numpy(boxes[whole]),
            labels=torch.from_numpy(labels[whole]),
            image=torch.from_numpy(image[whole]),
            hidden=torch.from_numpy(boxes[~whole]),
            hidden_image=torch.from_numpy(image[~whole]),
        )

    def symbols(self, windows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """A symbol for each window: its class is drawn first, then one of that class."""
        drawn = rng.choice(len(self._weights), size=windows, p=self._weights)
        which = (rng.random(windows) * self._counts[drawn]).astype(np.int64)
        return np.asarray(self._rows[self._first[drawn] + which])

    def _zoom(self, plain: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        options, windows = self.options, len(plain)
        both = rng.normal(0, options.zoom, windows)
        ratio = rng.normal(0, options.stretch, windows) / 2
        logs = np.clip(np.stack([both + ratio, both - ratio], axis=1), -options.most, options.most)
        return np.where(plain[:, None], 1.0, np.exp(logs))  # (b, 2)

    def _corners(
        self, pages: NDArray[np.int64], zoom: NDArray[np.float64], symbols: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Upper left corners: anywhere on the page, or so that the symbol's centre lies in the window's middle part."""
        sheets, options = self.sheets, self.options
        size = np.array([options.width, options.height]) / zoom  # on the page, (b, 2)
        page = np.stack([sheets.widths[pages], sheets.heights[pages]], axis=1)
        slack = page - size
        anywhere = slack * rng.random((len(pages), 2)) + rng.normal(0, 8, (len(pages), 2))
        centre = (sheets.boxes[symbols, :2] + sheets.boxes[symbols, 2:]) / 2
        shown = centre - size * rng.uniform(0.15, 0.85, (len(pages), 2))
        # A window that may show all of the page's width does so: it moves no further than the page's edges.
        held = np.clip(shown, np.minimum(slack, 0), np.maximum(slack, 0))
        return np.where(symbols[:, None] < 0, anywhere, held)


def cut_windows(pixels: Tensor, windows: Windows, height: int, width: int) -> Tensor:
    """The windows' pixels, on the device of `pixels`.

    Args:
        pixels: `Sheets.pixels`.
        windows: where; on the same device.
        height, width: of a window.

    Returns:
        Ink from 0 to 1, float32, shape (b, 1, height, width); beyond a page there is paper.
    """
    room_h, room_w = _room(height), _room(width)
    corner = windows.corner.floor().long() - _ROOM  # (b, 2)
    y = corner[:, 1, None] + torch.arange(room_h, device=pixels.device)  # (b, room_h)
    x = corner[:, 0, None] + torch.arange(room_w, device=pixels.device)  # (b, room_w)
    inside_y = (y >= 0) & (y < windows.heights[:, None])
    inside_x = (x >= 0) & (x < windows.widths[:, None])
    y = y.clamp(min=0).minimum(windows.heights[:, None] - 1)
    x = x.clamp(min=0).minimum(windows.widths[:, None] - 1)
    at = (windows.start[:, None] + y * windows.widths[:, None])[:, :, None] + x[:, None, :]  # (b, room_h, room_w)
    ink = 1 - pixels[at].float() / 255
    ink = ink * (inside_y[:, :, None] & inside_x[:, None, :])
    # A pixel's middle at the window's i + 0.5 is the page's corner + (i + 0.5) / zoom.
    shift = windows.corner - corner  # (b, 2)
    grid_x = shift[:, 0, None] + (torch.arange(width, device=pixels.device) + 0.5) / windows.zoom[:, 0, None]
    grid_y = shift[:, 1, None] + (torch.arange(height, device=pixels.device) + 0.5) / windows.zoom[:, 1, None]
    grid_x, grid_y = 2 * grid_x / room_w - 1, 2 * grid_y / room_h - 1  # as grid_sample counts
    grid = torch.stack(
        [
            grid_x[:, None, :].expand(-1, height, -1),
            grid_y[:, :, None].expand(-1, -1, width),
        ],
        dim=-1,
    )  # (b, height, width, 2)
    return F.grid_sample(ink[:, None], grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _room(size: int) -> int:
    """Pixels of the page that a window of that many pixels can need, at the smallest scale."""
    return int(np.ceil(size * np.exp(_MOST))) + 2 * _ROOM + 1
