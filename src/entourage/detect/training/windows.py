"""All pages of training at the working interline, packed one behind the other, so that windows of any page can be cut
out on the device that learns from them.

Windows of pages: which are drawn, rare symbols first, and how they are cut out and scaled on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.compute import count_threads, map_ahead
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.options import INTERLINE
from entourage.io.progress import progress_bar

MAX_MEMORY_FRACTION = 0.4  # of a GPU's free memory that pages may take; the rest belongs to the network


@dataclass
class PagePack:
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
        if device.type == "cuda" and self.pixels.numel() > MAX_MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0]:
            return
        self.pixels = self.pixels.to(device)

    def page(self, number: int) -> NDArray[np.uint8]:
        """A page, shape (h, w)."""
        shape = (int(self.heights[number]), int(self.widths[number]))
        return self.pixels[self.start[number] : self.start[number + 1]].cpu().numpy().reshape(shape)


def pack_pages(
    pages: Sequence[GroundTruthPage],
    classes: tuple[str, ...],
    *,
    interline: float = INTERLINE,
    workers: int | None = None,
    progress: bool | None = None,
) -> PagePack:
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
    return PagePack(
        classes,
        torch.from_numpy(np.concatenate([image.ravel() for image in images])),
        _offsets([image.size for image in images]),
        np.array([image.shape[0] for image in images]),
        np.array([image.shape[1] for image in images]),
        np.concatenate(boxes),
        np.concatenate([np.array(each, dtype=np.int64) for each in labels]),
        _offsets([len(each) for each in labels]),
    )


def scaled_page(page: GroundTruthPage, interline: float = INTERLINE) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
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


_PADDING = 2  # pixels around a window that interpolation may ask for
_MAX_LOG_ZOOM = 0.25  # the largest change of scale there is room for, as a logarithm


@dataclass(frozen=True)
class WindowOptions:
    """How windows are drawn.

    A page is about 950 pixels wide and windows are nearly as wide, so that what spans a page is seen whole.
    """

    height: int = 512
    width: int = 960
    class_balanced: float = 0.5  # share of the windows that are drawn around a symbol, whose class is drawn first
    max_class_count: int = 1000  # classes are sampled by the square root of their number of symbols, bounded by this
    unscaled: float = 0.4  # share of the windows that are neither scaled nor moved by fractions of a pixel
    zoom: float = 0.07  # standard deviation of the logarithm of the scale
    stretch: float = 0.02  # the same of the ratio of width to height
    max_zoom: float = 0.22  # the largest change of scale, as a logarithm
    min_visible: float = 0.6  # symbols of which less can be seen are neither taught nor called background

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 32:
            raise ValueError(f"a window is {self.height} x {self.width} pixels; expected at least 32 x 32")
        if not 0 <= self.max_zoom <= _MAX_LOG_ZOOM:
            raise ValueError(f"max_zoom is {self.max_zoom}; expected a change of scale in [0, {_MAX_LOG_ZOOM}]")
        for name in ("class_balanced", "unscaled", "min_visible"):
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


class WindowSampler:
    """Draws windows of pages; all of it with numpy, in the threads that load.

    Args:
        pack: the pages.
        options: how.
    """

    def __init__(self, pack: PagePack, options: WindowOptions) -> None:
        self.pack = pack
        self.options = options
        order = np.argsort(pack.labels, kind="stable")
        counts = pack.counts()
        self._rows = order  # symbols by class
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._counts = counts
        weights = np.sqrt(np.minimum(counts, options.max_class_count))
        self._weights = weights / weights.sum()

    def sample(self, windows: int, rng: np.random.Generator) -> Windows:
        """A batch."""
        pack, options = self.pack, self.options
        pages = rng.integers(len(pack), size=windows)
        around = rng.random(windows) < options.class_balanced
        symbols = self.sample_symbols(windows, rng)
        pages = np.where(around, pack.page_of(symbols), pages)
        plain = rng.random(windows) < options.unscaled
        zoom = self._zoom(plain, rng)
        corner = self._corners(pages, zoom, np.where(around, symbols, -1), rng)
        corner = np.where(plain[:, None], np.round(corner), corner)
        return self.cut(pages, corner, zoom)

    def cut(self, pages: NDArray[np.int64], corner: NDArray[np.float64], zoom: NDArray[np.float64]) -> Windows:
        """Windows at given places, with the symbols whose centres are inside."""
        pack, options = self.pack, self.options
        sizes = pack.first[pages + 1] - pack.first[pages]
        image = np.repeat(np.arange(len(pages)), sizes)
        rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + pack.first[pages][image]
        boxes = (pack.boxes[rows] - np.tile(corner, 2)[image]) * np.tile(zoom, 2)[image]
        size = np.array([options.width, options.height], dtype=np.float32)
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centre >= 0) & (centre < size)).all(axis=1)
        boxes, image, labels = boxes[inside].astype(np.float32), image[inside], pack.labels[rows][inside]
        seen = (np.clip(boxes[:, 2:], 0, size) - np.clip(boxes[:, :2], 0, size)).prod(axis=1)
        whole = seen >= options.min_visible * (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        return Windows(
            start=torch.from_numpy(pack.start[pages]),
            heights=torch.from_numpy(pack.heights[pages]),
            widths=torch.from_numpy(pack.widths[pages]),
            corner=torch.from_numpy(corner.astype(np.float32)),
            zoom=torch.from_numpy(zoom.astype(np.float32)),
            boxes=torch.from_numpy(boxes[whole]),
            labels=torch.from_numpy(labels[whole]),
            image=torch.from_numpy(image[whole]),
            hidden=torch.from_numpy(boxes[~whole]),
            hidden_image=torch.from_numpy(image[~whole]),
        )

    def sample_symbols(self, windows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """A symbol for each window: its class is drawn first, then one of that class."""
        drawn = rng.choice(len(self._weights), size=windows, p=self._weights)
        which = (rng.random(windows) * self._counts[drawn]).astype(np.int64)
        return np.asarray(self._rows[self._first[drawn] + which])

    def _zoom(self, plain: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        options, windows = self.options, len(plain)
        both = rng.normal(0, options.zoom, windows)
        ratio = rng.normal(0, options.stretch, windows) / 2
        logs = np.clip(np.stack([both + ratio, both - ratio], axis=1), -options.max_zoom, options.max_zoom)
        return np.where(plain[:, None], 1.0, np.exp(logs))  # (b, 2)

    def _corners(
        self, pages: NDArray[np.int64], zoom: NDArray[np.float64], symbols: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Upper left corners: anywhere on the page, or so that the symbol's centre lies in the window's middle part."""
        pack, options = self.pack, self.options
        size = np.array([options.width, options.height]) / zoom  # on the page, (b, 2)
        page = np.stack([pack.widths[pages], pack.heights[pages]], axis=1)
        slack = page - size
        anywhere = slack * rng.random((len(pages), 2)) + rng.normal(0, 8, (len(pages), 2))
        centre = (pack.boxes[symbols, :2] + pack.boxes[symbols, 2:]) / 2
        shown = centre - size * rng.uniform(0.15, 0.85, (len(pages), 2))
        # A window that may show all of the page's width does so: it moves no further than the page's edges.
        held = np.clip(shown, np.minimum(slack, 0), np.maximum(slack, 0))
        return np.where(symbols[:, None] < 0, anywhere, held)


def cut_windows(pixels: Tensor, windows: Windows, height: int, width: int) -> Tensor:
    """The windows' pixels, on the device of `pixels`.

    Args:
        pixels: `PagePack.pixels`.
        windows: where; on the same device.
        height, width: of a window.

    Returns:
        Ink from 0 to 1, float32, shape (b, 1, height, width); beyond a page there is paper.
    """
    room_h, room_w = _source_size(height), _source_size(width)
    corner = windows.corner.floor().long() - _PADDING  # (b, 2)
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


def _source_size(size: int) -> int:
    """Pixels of the page that a window of that many pixels can need, at the smallest scale."""
    return int(np.ceil(size * np.exp(_MAX_LOG_ZOOM))) + 2 * _PADDING + 1
