"""Drawings of detections on pages, and the HTML report of a run."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import GrayImage, scaled_size
from entourage.report.figures import raster_figure
from entourage.report.page import Block, Section, pluralize

ColorImage = NDArray[np.uint8]

DISPLAY_THRESHOLD = 0.3  # default minimum score of detections in files and drawings
RED = (0, 0, 220)  # in BGR
MAX_FIGURES = 12  # drawn pages in a report
MAX_ROWS = 2000  # rows of the table of pages in a report
_MIN_STRENGTH = 0.45  # strength of the colour at score 0: the palest that is visible on white paper
_GOLDEN_RATIO = 0.618034  # multiples of it, modulo 1, are spread evenly: adjacent labels have distinct hues
_WIDTH = 1200  # maximum width, in pixels, of a drawn page in a report
_UNFRAMED = ("staff", "staffLine", "staffSpace")  # drawn without frames, because they are as wide as the page
# Prefixes of classes that are drawn without names, because they are too frequent or too large.
_UNLABELLED = ("stem", "legerLine", "beam", "staff", "slur", "tie", "notehead", "augmentationDot")


def draw_detections(image: GrayImage, detections: Detections, *, labels: bool = True) -> ColorImage:
    """Draw the boxes of detections on a page; the lower the score, the paler the colour.

    Staves and their lines are not drawn.

    Args:
        image: grayscale, shape (h, w).
        detections: objects, in pixels of the image.
        labels: write class names above the boxes, except for frequent and large symbols: noteheads, stems, beams,
            ledger lines, slurs, ties and augmentation dots.

    Returns:
        The drawing in BGR, shape (h, w, 3).
    """
    drawn = np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    thickness = _line_thickness(image.shape)
    corners = np.round(detections.boxes.numpy()).astype(int)
    for name, label, score, box in zip(
        detections.names, detections.labels.tolist(), detections.scores.tolist(), corners.tolist(), strict=True
    ):
        if name in _UNFRAMED:
            continue
        colour = class_colour(label, _MIN_STRENGTH + (1 - _MIN_STRENGTH) * score)
        x0, y0, x1, y1 = box
        cv2.rectangle(drawn, (x0, y0), (x1 - 1, y1 - 1), colour, thickness)
        if labels and not name.startswith(_UNLABELLED):
            _write_text(drawn, name, (x0, y0 - 2), colour, thickness)
    return drawn


def draw_missed(drawn: ColorImage, missed: Detections) -> ColorImage:
    """Return a copy of a drawn page with thick red frames around missed objects, with their class names."""
    marked = drawn.copy()
    thickness = _line_thickness(drawn.shape)
    for name, box in zip(missed.names, np.round(missed.boxes.numpy()).astype(int).tolist(), strict=True):
        x0, y0, x1, y1 = box
        first, last = (x0 - thickness, y0 - thickness), (x1 + thickness - 1, y1 + thickness - 1)
        cv2.rectangle(marked, first, last, RED, 2 * thickness)
        _write_text(marked, name, (x0, y1 + 12 * thickness), RED, thickness)  # names of detections are above boxes
    return marked


def _line_thickness(shape: Sequence[int]) -> int:
    """Return the thickness, in pixels, of the frames drawn on a page of this shape."""
    return max(1, round(max(shape) / 2500))


def _write_text(
    drawn: ColorImage, text: str, position: tuple[int, int], colour: tuple[int, int, int], thickness: int
) -> None:
    cv2.putText(drawn, text, position, cv2.FONT_HERSHEY_SIMPLEX, 0.32 * thickness, colour, thickness, cv2.LINE_AA)


def class_colour(label: int, strength: float = 1.0) -> tuple[int, int, int]:
    """Return the colour of a class, in BGR; adjacent labels have distinct hues.

    Args:
        label: the label, from 1.
        strength: saturation, from 0 to 1; low values are pale.
    """
    red, green, blue = colorsys.hsv_to_rgb((label * _GOLDEN_RATIO) % 1.0, 0.9 * strength, 0.75 + 0.2 * (1 - strength))
    return int(255 * blue), int(255 * green), int(255 * red)


def page_figure(drawn: ColorImage, width: int = _WIDTH) -> str:
    """Return a drawn page as an `<svg>` element with an image of at most this width."""
    scale = min(1.0, width / drawn.shape[1])
    small = cv2.resize(drawn, scaled_size(drawn.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else drawn
    jpeg = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return raster_figure(jpeg.tobytes(), "jpeg", small.shape[1], small.shape[0])


def run_sections(
    rows: Sequence[Sequence[str]],
    counts: Counter[str],
    figures: Sequence[tuple[str, str]],
    skipped: Sequence[tuple[str, str]],
) -> list[Section]:
    """Return the sections of the report on a detection run.

    Args:
        rows: table of the pages, with its header as the first row.
        counts: number of detections of each class.
        figures: names and `<svg>` elements of the first pages.
        skipped: names of files and pages that could not be processed, with the reasons.
    """
    total = sum(counts.values())
    more = f" The first {MAX_ROWS} are listed; pages.csv has all." if len(rows) > MAX_ROWS + 1 else ""
    lead = f"{pluralize(len(rows) - 1, 'pages')}, {pluralize(total, 'symbols')} of {len(counts)} classes.{more}"
    classes = [("class", "symbols"), *((name, str(n)) for name, n in counts.most_common())]
    sections = [Section("Pages", lead, wide=[Block(table=rows[: MAX_ROWS + 1])])]
    if skipped:
        table = [("file", "reason"), *skipped]
        sections.append(Section("Skipped", "These files and pages could not be processed.", wide=[Block(table=table)]))
    if figures:
        sections.append(detections_section(figures))
    if counts:
        sections.append(Section("Classes", "", wide=[Block(table=classes)]))
    return sections


def detections_section(figures: Sequence[tuple[str, str]], note: str = "") -> Section:
    """Return the section of a report that shows drawn pages.

    Args:
        figures: names of pages and `<svg>` elements.
        note: appended to the description of the frames.
    """
    lead = "Each class has a colour; the lower the score, the paler it is. Staves have no frames, and frequent classes "
    lead += f"no names.{note}"
    return Section("Detections", lead, wide=[Block(name, figure=figure) for name, figure in figures])
