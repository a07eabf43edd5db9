"""What people see: pages with boxes drawn on them, and the report of a run."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import scaled_size
from entourage.report.figures import raster_figure
from entourage.report.page import Block, Section, pluralize

GrayImage = NDArray[np.uint8]
ColorImage = NDArray[np.uint8]

DISPLAY_THRESHOLD = 0.3  # least score of what is shown to people
RED = (0, 0, 220)  # in BGR
MAX_FIGURES = 12  # in a report
MAX_ROWS = 2000  # of pages in a report
_WIDTH = 1200  # pixels of a picture in a report
_UNFRAMED = ("staff", "staffLine", "staffSpace")  # as wide as the page
# Without a word: so many, or so large, that words would hide the page.
_UNLABELLED = ("stem", "legerLine", "beam", "staff", "slur", "tie", "notehead", "augmentationDot")


def draw_detections(image: GrayImage, found: Detections, *, words: bool = True) -> ColorImage:
    """The page in BGR, shape (h, w, 3), with frames around what was found but staves and their lines, strong if sure.

    Args:
        image: grey, shape (h, w).
        found: in pixels of the image.
        words: write the class above the frames, but for noteheads, stems, beams, ledger lines, slurs, ties and
            augmentation dots.
    """
    drawn = np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    thick = _thickness(image.shape)
    corners = np.round(found.boxes.numpy()).astype(int)
    for name, label, score, box in zip(
        found.names, found.labels.tolist(), found.scores.tolist(), corners.tolist(), strict=True
    ):
        if name in _UNFRAMED:
            continue
        colour = class_colour(label, 0.45 + 0.55 * score)
        x0, y0, x1, y1 = box
        cv2.rectangle(drawn, (x0, y0), (x1 - 1, y1 - 1), colour, thick)
        if words and not name.startswith(_UNLABELLED):
            _write(drawn, name, (x0, y0 - 2), colour, thick)
    return drawn


def draw_missed(drawn: ColorImage, lost: Detections) -> ColorImage:
    """A drawn page with red frames, thick ones, around what was not found on it, each with its name."""
    marked = drawn.copy()
    thick = _thickness(drawn.shape)
    for name, box in zip(lost.names, np.round(lost.boxes.numpy()).astype(int).tolist(), strict=True):
        x0, y0, x1, y1 = box
        cv2.rectangle(marked, (x0 - thick, y0 - thick), (x1 + thick - 1, y1 + thick - 1), RED, 2 * thick)
        _write(marked, name, (x0, y1 + 12 * thick), RED, thick)  # below, where no other name is
    return marked


def _thickness(shape: Sequence[int]) -> int:
    """Of lines, in pixels, on a page of that shape."""
    return max(1, round(max(shape) / 2500))


def _write(drawn: ColorImage, name: str, place: tuple[int, int], colour: tuple[int, int, int], thick: int) -> None:
    cv2.putText(drawn, name, place, cv2.FONT_HERSHEY_SIMPLEX, 0.32 * thick, colour, thick, cv2.LINE_AA)


def class_colour(label: int, strength: float = 1.0) -> tuple[int, int, int]:
    """A colour for each class, far from those of its neighbours in the list, in BGR; weak ones are pale."""
    red, green, blue = colorsys.hsv_to_rgb((label * 0.618034) % 1.0, 0.9 * strength, 0.75 + 0.2 * (1 - strength))
    return int(255 * blue), int(255 * green), int(255 * red)


def page_figure(drawn: ColorImage, width: int = _WIDTH) -> str:
    """A drawn page as an `<svg>` element that holds an image of at most that width."""
    scale = min(1.0, width / drawn.shape[1])
    small = cv2.resize(drawn, scaled_size(drawn.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else drawn
    height, wide = small.shape[:2]
    packed = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return raster_figure(packed.tobytes(), "jpeg", wide, height)


def run_sections(
    rows: Sequence[Sequence[str]],
    counts: Counter[str],
    pictures: Sequence[tuple[str, str]],
    skipped: Sequence[tuple[str, str]],
) -> list[Section]:
    """The sections of the report on a run.

    Args:
        rows: of pages, the first being the header.
        counts: how many of each class were found.
        pictures: names and `<svg>` elements of the first pages.
        skipped: names and reasons of what could not be read.
    """
    total = sum(counts.values())
    more = f" The first {MAX_ROWS} are listed; pages.csv has all." if len(rows) > MAX_ROWS + 1 else ""
    lead = f"{pluralize(len(rows) - 1, 'pages')}, {pluralize(total, 'symbols')} of {len(counts)} classes.{more}"
    found = [("class", "symbols"), *((name, str(n)) for name, n in counts.most_common())]
    sections = [Section("Pages", lead, wide=[Block(table=rows[: MAX_ROWS + 1])])]
    if skipped:
        table = [("file", "reason"), *skipped]
        sections.append(Section("Skipped", "These could not be read.", wide=[Block(table=table)]))
    if pictures:
        sections.append(detections_section(pictures))
    if counts:
        sections.append(Section("Classes", "", wide=[Block(table=found)]))
    return sections


def detections_section(pictures: Sequence[tuple[str, str]], more: str = "") -> Section:
    """The section that shows pages.

    Args:
        pictures: names of pages and `<svg>` elements.
        more: what else to say of the frames.
    """
    lead = f"A colour a class; doubtful ones are pale. Staves have no frame, common classes no name.{more}"
    return Section("What was found", lead, wide=[Block(name, figure=figure) for name, figure in pictures])
