"""Training pages in memory, scaled to one interline, and windows of them.

All pages lie one after the other in a single tensor, so that windows of any page can be cut out on the training device.
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

MAX_MEMORY_FRACTION = 0.4  # maximum fraction of a GPU's free memory for pages; the network needs the rest


@dataclass
class PagePack:
    """Packed pages and their symbols: arrays on the CPU, except the pixels, which `move` may put on a GPU.

    Attributes:
        classes: names of the classes.
        pixels: pixels of all pages one after the other, row by row, uint8, dark ink on light paper.
        start: offset of each page in `pixels`, int64, shape (p + 1,).
        heights, widths: int64, shape (p,).
        boxes: boxes of all symbols in pixels of their page, float32, shape (n, 4).
        labels: labels of the symbols, from 1, int64, shape (n,).
        first: offset of the symbols of each page in `boxes`, int64, shape (p + 1,).
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
        """Return the index of the page of each symbol; `rows` are indices of symbols."""
        return np.searchsorted(self.first, rows, side="right") - 1

    def counts(self) -> NDArray[np.int64]:
        """Return the number of symbols of each class, shape (classes,)."""
        return np.bincount(self.labels - 1, minlength=len(self.classes))

    def move(self, device: torch.device) -> None:
        """Move the pixels to a GPU if they take at most `MAX_MEMORY_FRACTION` of its free memory."""
        here = self.pixels.device
        if here.type == device.type and device.index in (None, here.index):
            return
        if device.type == "cuda" and self.pixels.numel() > MAX_MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0]:
            return
        self.pixels = self.pixels.to(device)

    def page(self, number: int) -> NDArray[np.uint8]:
        """Return the image of a page, shape (h, w)."""
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
    """Read all pages, scale them to the same distance between staff lines, and pack them.

    Args:
        pages: pages with their symbols; symbols of other classes are left out.
        classes: names of the classes.
        interline: pixels between staff lines of the packed pages.
        workers: number of threads; None: one per core.
        progress: show a progress bar; None: only on a terminal.

    Returns:
        The packed pages.

    Raises:
        ValueError: a page cannot be read, or no page has a symbol of the classes.
    """
    numbers = {name: number for number, name in enumerate(classes, start=1)}
    images, boxes, labels = [], [], []
    with progress_bar("Pages", len(pages), progress) as advance:
        read = map_ahead(lambda page: scaled_page(page, interline), pages, count_threads(workers))
        for page, (image, scaled_boxes) in zip(pages, read, strict=True):
            rows = [row for row, label in enumerate(page.labels) if label in numbers]
            images.append(image)
            boxes.append(scaled_boxes[rows])
            labels.append([numbers[label] for label in page.labels if label in numbers])
            advance(1)
    if not any(labels):
        raise ValueError(
            f"pages: none of {len(pages)} has a symbol of the {len(classes)} classes; expected at least one"
        )
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
    """Return the image of a page, scaled to an interline, and its boxes at that scale."""
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


_PADDING = 2  # pixels around a window for interpolation
_MAX_LOG_ZOOM = 0.25  # limit of `WindowOptions.max_zoom`; determines the pixels that are read for a window


@dataclass(frozen=True)
class WindowOptions:
    """Options of the sampling of windows.

    Pages are about 950 pixels wide. Windows are as wide, so that symbols that span a page are visible in full.
    """

    height: int = 512
    width: int = 960
    class_balanced: float = 0.5  # fraction of the windows around a symbol, whose class is sampled first
    max_class_count: int = 1000  # classes are sampled by the square root of their count, at most this
    unscaled: float = 0.4  # fraction of the windows without scaling and subpixel shifts
    zoom: float = 0.07  # standard deviation of the logarithm of the scale
    stretch: float = 0.02  # standard deviation of the logarithm of the aspect ratio
    max_zoom: float = 0.22  # maximum absolute logarithm of the scale
    min_visible: float = 0.6  # minimum visible area fraction; other symbols are ignored

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 32:
            raise ValueError(f"height and width are {self.height} x {self.width}; expected at least 32 x 32 pixels")
        if not 0 <= self.max_zoom <= _MAX_LOG_ZOOM:
            raise ValueError(f"max_zoom is {self.max_zoom}; expected a number in [0, {_MAX_LOG_ZOOM}]")
        for name in ("class_balanced", "unscaled", "min_visible"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a fraction in [0, 1]")


@dataclass(frozen=True)
class Windows:
    """A batch of windows and the symbols in them.

    Attributes:
        start, heights, widths: offset and size of the page of each window, int64, shape (b,).
        corner: x, y of the upper left corner on the page, float32, shape (b, 2).
        zoom: pixels of the window per pixel of the page, horizontal and vertical, float32, shape (b, 2).
        boxes: boxes of the symbols in pixels of their window, float32, shape (n, 4).
        labels: labels of the symbols, from 1, int64, shape (n,).
        image: index of the window of each symbol, int64, shape (n,).
        hidden: boxes of symbols that are mostly cut off, float32, shape (k, 4).
        hidden_image: index of the window of each hidden symbol, int64, shape (k,).
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
    """Sampler of windows of the packed pages; it uses NumPy and runs in the loading threads.

    Args:
        pack: the pages.
        options: options of the windows.
    """

    def __init__(self, pack: PagePack, options: WindowOptions) -> None:
        self.pack = pack
        self.options = options
        counts = pack.counts()
        self._rows = np.argsort(pack.labels, kind="stable")  # indices of the symbols, sorted by class
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._counts = counts
        weights = np.sqrt(np.minimum(counts, options.max_class_count))
        self._weights = weights / weights.sum()

    def sample(self, windows: int, rng: np.random.Generator) -> Windows:
        """Sample the positions of a batch of windows, and the symbols in them."""
        pack, options = self.pack, self.options
        pages = rng.integers(len(pack), size=windows)
        around_symbol = rng.random(windows) < options.class_balanced
        symbols = self.sample_symbols(windows, rng)
        pages = np.where(around_symbol, pack.page_of(symbols), pages)
        unscaled = rng.random(windows) < options.unscaled
        zoom = self._zoom(unscaled, rng)
        corner = self._corners(pages, zoom, np.where(around_symbol, symbols, -1), rng)
        corner = np.where(unscaled[:, None], np.round(corner), corner)
        return self.cut(pages, corner, zoom)

    def cut(self, pages: NDArray[np.int64], corner: NDArray[np.float64], zoom: NDArray[np.float64]) -> Windows:
        """Return windows with upper left corners (b, 2) and zooms (b, 2), and the symbols centred inside them."""
        pack, options = self.pack, self.options
        sizes = pack.first[pages + 1] - pack.first[pages]
        image = np.repeat(np.arange(len(pages)), sizes)
        rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + pack.first[pages][image]
        boxes = (pack.boxes[rows] - np.tile(corner, 2)[image]) * np.tile(zoom, 2)[image]
        size = np.array([options.width, options.height], dtype=np.float32)
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centre >= 0) & (centre < size)).all(axis=1)
        boxes, image, labels = boxes[inside].astype(np.float32), image[inside], pack.labels[rows][inside]
        visible_area = (np.clip(boxes[:, 2:], 0, size) - np.clip(boxes[:, :2], 0, size)).prod(axis=1)
        visible = visible_area >= options.min_visible * (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        return Windows(
            start=torch.from_numpy(pack.start[pages]),
            heights=torch.from_numpy(pack.heights[pages]),
            widths=torch.from_numpy(pack.widths[pages]),
            corner=torch.from_numpy(corner.astype(np.float32)),
            zoom=torch.from_numpy(zoom.astype(np.float32)),
            boxes=torch.from_numpy(boxes[visible]),
            labels=torch.from_numpy(labels[visible]),
            image=torch.from_numpy(image[visible]),
            hidden=torch.from_numpy(boxes[~visible]),
            hidden_image=torch.from_numpy(image[~visible]),
        )

    def sample_symbols(self, windows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sample a symbol for each window: first its class, then a symbol of that class."""
        classes = rng.choice(len(self._weights), size=windows, p=self._weights)
        positions = (rng.random(windows) * self._counts[classes]).astype(np.int64)
        return np.asarray(self._rows[self._first[classes] + positions])

    def _zoom(self, unscaled: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        options, windows = self.options, len(unscaled)
        scale = rng.normal(0, options.zoom, windows)
        ratio = rng.normal(0, options.stretch, windows) / 2
        log_zoom = np.clip(np.stack([scale + ratio, scale - ratio], axis=1), -options.max_zoom, options.max_zoom)
        return np.where(unscaled[:, None], 1.0, np.exp(log_zoom))  # (b, 2)

    def _corners(
        self, pages: NDArray[np.int64], zoom: NDArray[np.float64], symbols: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Sample the upper left corners of windows on their pages, shape (b, 2).

        Windows whose symbol is -1 lie anywhere on the page; the middle 70 % of the others contain the centre of their
        symbol.
        """
        pack, options = self.pack, self.options
        size = np.array([options.width, options.height]) / zoom  # on the page, (b, 2)
        page = np.stack([pack.widths[pages], pack.heights[pages]], axis=1)
        slack = page - size
        uniform = slack * rng.random((len(pages), 2)) + rng.normal(0, 8, (len(pages), 2))
        centre = (pack.boxes[symbols, :2] + pack.boxes[symbols, 2:]) / 2
        around_symbol = centre - size * rng.uniform(0.15, 0.85, (len(pages), 2))
        # Windows do not exceed the page; along an axis where they are larger, they contain all of it.
        clipped = np.clip(around_symbol, np.minimum(slack, 0), np.maximum(slack, 0))
        return np.where(symbols[:, None] < 0, uniform, clipped)


def cut_windows(pixels: Tensor, windows: Windows, height: int, width: int) -> Tensor:
    """Cut windows out of the pages, by bilinear interpolation on the device of the pixels.

    Args:
        pixels: `PagePack.pixels`.
        windows: positions of the windows, on the same device.
        height, width: size of the windows.

    Returns:
        Ink from 0 to 1, float32, shape (b, 1, height, width); paper outside the page.
    """
    source_height, source_width = _source_size(height), _source_size(width)
    corner = windows.corner.floor().long() - _PADDING  # (b, 2)
    y = corner[:, 1, None] + torch.arange(source_height, device=pixels.device)  # (b, source_height)
    x = corner[:, 0, None] + torch.arange(source_width, device=pixels.device)  # (b, source_width)
    inside_y = (y >= 0) & (y < windows.heights[:, None])
    inside_x = (x >= 0) & (x < windows.widths[:, None])
    y = y.clamp(min=0).minimum(windows.heights[:, None] - 1)
    x = x.clamp(min=0).minimum(windows.widths[:, None] - 1)
    row_start = windows.start[:, None] + y * windows.widths[:, None]  # (b, source_height)
    flat_index = row_start[:, :, None] + x[:, None, :]  # (b, source_height, source_width)
    ink = 1 - pixels[flat_index].float() / 255
    ink = ink * (inside_y[:, :, None] & inside_x[:, None, :])
    # The pixel centre i + 0.5 of the window lies at corner + (i + 0.5) / zoom on the page.
    shift = windows.corner - corner  # (b, 2)
    grid_x = shift[:, 0, None] + (torch.arange(width, device=pixels.device) + 0.5) / windows.zoom[:, 0, None]
    grid_y = shift[:, 1, None] + (torch.arange(height, device=pixels.device) + 0.5) / windows.zoom[:, 1, None]
    grid_x, grid_y = 2 * grid_x / source_width - 1, 2 * grid_y / source_height - 1  # coordinates of grid_sample
    columns, rows = grid_x[:, None, :].expand(-1, height, -1), grid_y[:, :, None].expand(-1, -1, width)
    grid = torch.stack([columns, rows], dim=-1)  # (b, height, width, 2)
    return F.grid_sample(ink[:, None], grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _source_size(size: int) -> int:
    """Return the number of page pixels along a side of a window at the minimum zoom."""
    return int(np.ceil(size * np.exp(_MAX_LOG_ZOOM))) + 2 * _PADDING + 1
