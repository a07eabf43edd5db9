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
from entourage.report.figures import Mark, marked_figure
from entourage.report.page import Block, Section, pluralize

ColorImage = NDArray[np.uint8]

DISPLAY_THRESHOLD = 0.3  # default minimum score of detections in files and drawings
RED = "#dc0000"
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


def boxes_figure(image: GrayImage, found: Detections, missed: Detections | None = None) -> str:
    """Return a page as an `<svg>` element with the frames of detections, which the report shows and hides by class.

    Args:
        image: grayscale, shape (h, w).
        found: objects, in pixels of the image; staves have no frames.
        missed: objects that were not detected, with thick red frames.
    """
    height, width = image.shape
    scale = min(1.0, _WIDTH / width)
    small = cv2.resize(image, scaled_size(image.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else image
    jpeg = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 75])[1]
    marks = [
        Mark(name, (box[0], box[1], box[2], box[3]), css_colour(label), score)
        for name, label, score, box in zip(
            found.names, found.labels.tolist(), found.scores.tolist(), found.boxes.tolist(), strict=True
        )
        if name not in _UNFRAMED
    ]
    for name, box in [] if missed is None else zip(missed.names, missed.boxes.tolist(), strict=True):
        marks.append(Mark(f"missed: {name}", (box[0], box[1], box[2], box[3]), RED, line=3))
    return marked_figure(jpeg.tobytes(), "jpeg", width, height, marks)


def css_colour(label: int) -> str:
    """Return the colour of a class as in CSS."""
    blue, green, red = class_colour(label)
    return f"#{red:02x}{green:02x}{blue:02x}"


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
    lead = "Each class has a colour; the switches show and hide classes. Staves have no frames. Ctrl with the wheel, + "
    lead += f"and - zoom a page that was clicked.{note}"
    return Section("Detections", lead, wide=[Block(name, figure=figure, legend=True) for name, figure in figures])
