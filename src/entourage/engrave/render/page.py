"""Rendering of a page and its annotations: image, boxes, masks and segmentation, all from the same ink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.encoding import encode_masks
from entourage.engrave.render.marks import AnnotatedMarks, Mark, Symbol
from entourage.engrave.render.outlines import Edges
from entourage.engrave.render.raster import Ink, Ints, rasterise

Image = NDArray[np.uint8]
Number = TypeVar("Number", np.uint8, np.uint16)
_SLANTED = ("beam", "slur", "tie", "dynamicCrescendoHairpin", "dynamicDiminuendoHairpin")
# Where symbols overlap, the pixel belongs to the class that is later in this list; unlisted classes come last.
_PAINT_ORDER: tuple[str, ...] = ("staff", "barline", "repeatLeft", "repeatRight", "bracket", "voltaBracket")
_PAINT_ORDER += ("ottavaBracket", "graceNote", "legerLine", "stem", "tupletBracket")
_PAINT_ORDER += ("dynamicCrescendo", "dynamicDiminuendo", "slur", "tie", "beam")


@dataclass(frozen=True)
class Pixels:
    """The pixels of all symbols on a page.

    Attributes:
        symbol_index: index of the symbol, shape (n,).
        x, y: coordinates of the pixel, shape (n,) each.
    """

    symbol_index: Ints
    x: Ints
    y: Ints


@dataclass(frozen=True)
class Page:
    """An engraved page: its image, and its symbols with boxes and pixels.

    Attributes:
        image: grey values, 255 for paper, shape (height, width).
        symbols: the symbols that have ink on the page.
        boxes: bounding box of the ink of each symbol, x0, y0, x1, y1 with exclusive ends, shape (n, 4).
        oriented: corners of the oriented bounding box, shape (n, 4, 2): of minimum area for beams, slurs, ties and
            hairpins, axis-aligned for other symbols.
        pixels: pixels of each symbol, including those that other symbols cover.
        unlabelled: one name per glyph without a class: its code point, or its name in LilyPond.
        number: number of the page in its score, from 1.
        unassigned: outlines of marks that belong to no symbol, such as text.
    """

    image: Image
    symbols: list[Symbol]
    boxes: Ints
    oriented: NDArray[np.float64]
    pixels: Pixels
    unlabelled: list[str]
    number: int = 1
    unassigned: list[Edges] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every glyph on the page has a class, so that the background contains no symbols."""
        return not self.unlabelled

    @cached_property
    def areas(self) -> Ints:
        """Area of each symbol in pixels, shape (n,)."""
        return np.bincount(self.pixels.symbol_index, minlength=len(self.symbols))

    @cached_property
    def masks(self) -> list[str]:
        """Mask of each symbol, including hidden parts, as COCO's compressed run lengths."""
        height, width = self.image.shape
        return encode_masks(self.pixels.symbol_index, self.pixels.x, self.pixels.y, len(self.symbols), height, width)

    def segmentation(self, ids: Mapping[str, int]) -> Image:
        """Return the number of the class that each pixel of the page belongs to.

        Args:
            ids: number of each class, below 256.

        Returns:
            Class numbers, 0 for background, shape (height, width).
        """
        numbers = np.array([ids.get(s.label, 0) for s in self.symbols], dtype=np.uint8)
        return self._paint(numbers)

    def instances(self) -> NDArray[np.uint16]:
        """Return the number of the symbol that each pixel of the page belongs to.

        Returns:
            Numbers from 1 in the order of `symbols`, 0 for background, shape (height, width).
        """
        numbers = np.array([i if s.label else 0 for i, s in enumerate(self.symbols, start=1)], dtype=np.uint16)
        return self._paint(numbers)

    def _paint(self, numbers: NDArray[Number]) -> NDArray[Number]:
        canvas = np.zeros(self.image.shape, dtype=numbers.dtype)
        values = numbers[self.pixels.symbol_index]  # symbols are sorted in the order of painting
        visible = values != 0
        canvas[self.pixels.y[visible], self.pixels.x[visible]] = values[visible]
        return canvas


def render_page(
    marks: list[Mark],
    annotated: AnnotatedMarks,
    height: int,
    width: int,
    number: int = 1,
    degrader: Degrader | None = None,
) -> Page:
    """Render the marks of a page and find the pixels of each symbol.

    Args:
        marks: marks of the page.
        annotated: the symbols that consist of them.
        height, width: size of the page in pixels; marks are clipped to it.
        number: number of the page in its score.
        degrader: degradation of the page, or None.

    Returns:
        The page.
    """
    shapes = [mark.edges for mark in marks]
    if degrader is not None:
        shapes = degrader.warp_outlines(shapes)
    ink = _clip_to_page(rasterise(shapes), height, width)
    image = np.ones(height * width, dtype=np.float32)
    index = ink.y * width + ink.x
    np.multiply.at(image, index, 1 - ink.coverage)
    grey = np.asarray(cv2.convertScaleAbs(image.reshape(height, width), alpha=255), dtype=np.uint8)
    if degrader is not None:
        grey = degrader.degrade_image(grey)
    solid = _binarise(ink, index, image < 0.5)
    has_ink = np.diff(solid.start) > 0
    symbols = [s for s in annotated.symbols if any(has_ink[i] for i in s.marks)]
    symbols.sort(key=lambda s: (_layer(s), s.marks[0]))
    pixels = _pixels(symbols, solid, height)
    boxes = _boxes(pixels, len(symbols))
    oriented = _oriented(symbols, shapes, boxes)
    assigned = {i for symbol in symbols for i in symbol.marks}
    unassigned = [shape for i, shape in enumerate(shapes) if i not in assigned]
    return Page(grey, symbols, boxes, oriented, pixels, annotated.unlabelled, number, unassigned)


def _layer(symbol: Symbol) -> int:
    if not symbol.label:
        return -1  # classes of V1 only: painted first, so that they never hide symbols of the extended list
    return next((i for i, start in enumerate(_PAINT_ORDER) if symbol.label.startswith(start)), len(_PAINT_ORDER))


def _clip_to_page(ink: Ink, height: int, width: int) -> Ink:
    inside = (ink.x >= 0) & (ink.x < width) & (ink.y >= 0) & (ink.y < height)
    return ink if inside.all() else _subset(ink, inside)


def _subset(ink: Ink, keep: NDArray[np.bool_]) -> Ink:
    start = np.concatenate([[0], np.cumsum(keep)])[ink.start]
    return Ink(ink.x[keep], ink.y[keep], ink.coverage[keep], start)


def _binarise(ink: Ink, index: Ints, dark: NDArray[np.bool_]) -> Ink:
    """Select the pixels of each mark: those that it covers by half or, for thin marks, by half of their maximum.

    A dark pixel that several marks cover by less is assigned to the one that covers most of it, so that every dark
    pixel belongs to a mark.
    """
    counts = np.diff(ink.start)
    non_empty = np.flatnonzero(counts)
    max_coverage = np.ones(len(counts), dtype=np.float32)
    if len(non_empty):
        max_coverage[non_empty] = np.maximum.reduceat(ink.coverage, ink.start[non_empty])
    keep = ink.coverage >= np.repeat(np.minimum(0.5, max_coverage / 2), counts)
    dark[index[keep]] = False
    seams = np.flatnonzero(dark[index])
    order = seams[np.lexsort((-ink.coverage[seams], index[seams]))]
    first = np.concatenate([[True], np.diff(index[order]) != 0]) if len(order) else np.empty(0, dtype=bool)
    keep[order[first]] = True
    return _subset(ink, keep)


def _pixels(symbols: list[Symbol], ink: Ink, height: int) -> Pixels:
    """Return the unique pixels of each symbol, column by column."""
    pairs = [(k, i) for k, symbol in enumerate(symbols) for i in symbol.marks]
    if not pairs:
        empty = np.empty(0, dtype=np.int64)
        return Pixels(empty, empty, empty)
    symbol_index, mark = np.array(pairs).T
    sizes = np.diff(ink.start)[mark]
    first = np.cumsum(sizes) - sizes
    source = np.arange(sizes.sum()) - np.repeat(first, sizes) + np.repeat(ink.start[mark], sizes)
    symbol_index, x, y = np.repeat(symbol_index, sizes), ink.x[source], ink.y[source]
    # The pixels of a single mark are sorted and unique; only those of symbols with several marks must be merged.
    has_several_marks = np.array([len(symbol.marks) > 1 for symbol in symbols])[symbol_index]
    if has_several_marks.any():
        stride = int(x.max() + 1) * height
        merged = np.sort(
            symbol_index[has_several_marks] * stride + x[has_several_marks] * height + y[has_several_marks]
        )
        merged = merged[np.concatenate([[True], merged[1:] != merged[:-1]])]  # np.unique hashes, which is slower
        symbol_indices, positions = np.divmod(merged, stride)
        symbol_index, x, y = (
            np.concatenate([single[~has_several_marks], unique])
            for single, unique in ((symbol_index, symbol_indices), (x, positions // height), (y, positions % height))
        )
        order = np.argsort(symbol_index, kind="stable")
        symbol_index, x, y = symbol_index[order], x[order], y[order]
    return Pixels(symbol_index, x, y)


def _boxes(pixels: Pixels, count: int) -> Ints:
    if count == 0:
        return np.empty((0, 4), dtype=np.int64)
    first = np.searchsorted(pixels.symbol_index, np.arange(count))
    low = [np.minimum.reduceat(v, first) for v in (pixels.x, pixels.y)]
    high = [np.maximum.reduceat(v, first) + 1 for v in (pixels.x, pixels.y)]
    return np.stack([*low, *high], axis=1)


def _oriented(symbols: list[Symbol], shapes: list[Edges], boxes: Ints) -> NDArray[np.float64]:
    x0, y0, x1, y1 = boxes.T.astype(np.float64)
    corners = np.stack([x1, y1, x1, y0, x0, y0, x0, y1], axis=1).reshape(-1, 4, 2)
    for k, symbol in enumerate(symbols):
        if symbol.label in _SLANTED:
            outline = np.concatenate([shapes[i][:, :2] for i in symbol.marks]).astype(np.float32)
            corners[k] = cv2.boxPoints(cv2.minAreaRect(outline))
    return corners
