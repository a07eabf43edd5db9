"""The report of a run: each scan next to the engraving of what was read, with the same measure marked in both."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from entourage import __version__
from entourage.data.media import UnreadableImageError
from entourage.detect.preprocessing.reading import GrayImage, read_page, scaled_size
from entourage.io.files import write_text
from entourage.read.formats.musicxml import to_musicxml
from entourage.read.reader import Transcription
from entourage.read.score import Box, Measure, Score
from entourage.report.page import pluralize
from entourage.report.scripts import bundle, style

MAX_PAGES = 24  # pages with pictures in a report; each takes about half a megabyte
UNSURE = 0.5  # confidence below which a measure is shown as unsure
_WIDTH = 1200  # pixels of a scan in the report
_JPEG_QUALITY = 55
_MARGIN = 0.35  # of the height of a staff, around a measure
_VEROVIO = {
    "breaks": "encoded",
    "adjustPageHeight": True,
    "pageWidth": 2600,
    "pageHeight": 60000,
    "scale": 40,
    "svgViewBox": True,
    "svgRemoveXlink": True,
    "header": "none",
    "footer": "none",
    "xmlIdChecksum": True,
    **{f"pageMargin{side}": 30 for side in ("Left", "Right", "Top", "Bottom")},
}
_MEASURE = re.compile(r'<g id="[^"]*" class="measure[^"]*">')
_IDS = re.compile(r'<g id="[^"]*" class=')
_INDENT = re.compile(r">\s+<")


@dataclass(frozen=True)
class ReportScore:
    """A score of the report.

    Attributes:
        name: name of its files without suffix.
        score: the music, with the pages it was read from.
    """

    name: str
    score: Transcription


@dataclass(frozen=True)
class MeasureMark:
    """A measure of all parts.

    Attributes:
        index: position in the score, from 0.
        number: printed in messages, from 1.
        box: around its staves on the page.
        system: system of the page, from 1.
        problems: part and reason, for each part whose durations do not add up.
        problem_boxes: staves of these parts.
        confidence: lowest confidence of its parts.
    """

    index: int
    number: int
    box: Box
    system: int
    problems: list[tuple[str, str]]
    problem_boxes: list[Box]
    confidence: float

    @property
    def label(self) -> str:
        """Description on one line."""
        reasons = "".join(f"; {part}: {reason}" for part, reason in self.problems)
        return f"Measure {self.number}, system {self.system}: confidence {100 * self.confidence:.0f} %{reasons}"

    @property
    def state(self) -> str:
        """ "marked", "unsure" or "sure"."""
        return "marked" if self.problems else "unsure" if self.confidence < UNSURE else "sure"


@dataclass(frozen=True)
class ReportPage:
    """A page of the report.

    Attributes:
        source: file and number of the page.
        message: messages for the user, or "".
        width, height: size in pixels.
        picture: the scan as a data URI, or "".
        measures: the measures on it.
        engraving: the engraving of its measures as an `<svg>` element, or "".
    """

    source: str
    message: str
    width: int
    height: int
    picture: str
    measures: list[MeasureMark]
    engraving: Markup


def write_report(path: Path, scores: Iterable[ReportScore], summary: Mapping[str, Any]) -> None:
    """Write the report of a run as one file without references to other hosts; it is complete or absent.

    Args:
        path: file to write.
        scores: the scores; the pages after the first `MAX_PAGES` are only listed.
        summary: counts and skipped pages of the run.
    """
    environment = Environment(
        loader=PackageLoader("entourage.read", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["pluralize"] = pluralize
    entries = {score["name"]: score for score in summary["scores"]}
    html = environment.get_template("report.html").render(
        scores=_entries(scores, entries),
        summary=summary,
        version=__version__,
        max_pages=MAX_PAGES,
        script=bundle("measures.js"),
        style=style(),
    )
    write_text(path, html)


def _entries(scores: Iterable[ReportScore], entries: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of the template for each score; the limit of pages applies to all scores together."""
    remaining = MAX_PAGES
    for item in scores:
        pages = report_pages(item.score, remaining)
        remaining -= len(pages)
        marks = [mark for page in pages for mark in page.measures if mark.problems]
        yield {
            **entries[item.name],
            "report_pages": pages,
            "marks": marks,
            "omitted": len(item.score.pages) - len(pages),
        }


def report_pages(score: Transcription, limit: int = MAX_PAGES) -> list[ReportPage]:
    """Return the pages of a score with their pictures and engravings.

    Args:
        score: the music.
        limit: maximum number of pages.
    """
    marks: dict[int, list[MeasureMark]] = {}
    for index in range(len(score.parts[0].measures) if score.parts else 0):
        column = [(part.name, part.measures[index]) for part in score.parts]
        if mark := _mark(index, column):
            marks.setdefault(column[0][1].page, []).append(mark)
    engravings = engrave_pages(score) if score.n_notes and limit > 0 else {}
    pages = []
    for number, info in enumerate(score.pages[: max(0, limit)], start=1):
        engraving = Markup(engravings.get(number, ""))
        picture = _picture(info.source)
        pages.append(
            ReportPage(info.source, info.message, info.width, info.height, picture, marks.get(number, []), engraving)
        )
    return pages


def _mark(index: int, column: list[tuple[str, Measure]]) -> MeasureMark | None:
    """Return the description of a measure, or None if no part has a place on the page."""
    boxes = [box for _, measure in column for box in measure.boxes]
    if not boxes:
        return None
    read = [(name, measure) for name, measure in column if measure.boxes]
    margin = _MARGIN * max(min(y1 - y0, x1 - x0) for x0, y0, x1, y1 in boxes)
    array = np.array(boxes)
    x0, y0 = array[:, :2].min(axis=0)
    x1, y1 = array[:, 2:].max(axis=0)
    return MeasureMark(
        index=index,
        number=read[0][1].number,
        box=(float(x0), float(y0 - margin), float(x1), float(y1 + margin)),
        system=read[0][1].system,
        problems=[(name, measure.problem) for name, measure in read if measure.problem],
        problem_boxes=[box for _, measure in read if measure.problem for box in measure.boxes],
        confidence=min(measure.confidence for _, measure in read),
    )


def _picture(source: str) -> str:
    """Return a page as a data URI of a JPEG; "" if it can no longer be read."""
    try:
        image = read_page(source)
    except (UnreadableImageError, OSError):
        return ""
    return image_data_uri(image)


def image_data_uri(image: GrayImage) -> str:
    """Return a grayscale image as a data URI of a JPEG, reduced to the width of a report."""
    scale = _WIDTH / image.shape[1]
    if scale < 1:
        small = cv2.resize(image, scaled_size(image.shape, scale), interpolation=cv2.INTER_AREA)
        image = np.asarray(small, dtype=np.uint8)
    jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])[1].tobytes()
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def engrave_pages(score: Score) -> dict[int, str]:
    """Engrave a score with the line and page breaks of the pages it was read from.

    Args:
        score: the music; it has at least one measure.

    Returns:
        For each page with music, from 1, an `<svg>` element; the attribute data-m of its measures is their position in
        the score.
    """
    import verovio  # a compiled library that only reports need

    verovio.enableLog(verovio.LOG_OFF)
    toolkit = verovio.toolkit()
    toolkit.setOptions(_VEROVIO)
    if not toolkit.loadData(to_musicxml(score)):
        return {}
    page_of = [measure.page for measure in score.parts[0].measures]
    engravings: dict[int, str] = {}
    index = 0
    for number in range(1, toolkit.getPageCount() + 1):
        svg, found = number_measures(toolkit.renderToSVG(number), index)
        if found:
            page = page_of[min(index, len(page_of) - 1)]
            engravings[page] = engravings.get(page, "") + svg
        index += found
    return engravings


def number_measures(svg: str, first: int) -> tuple[str, int]:
    """Add the position of each measure to a page of Verovio, and remove ids that nothing refers to.

    Args:
        svg: the page.
        first: position of its first measure in the score.

    Returns:
        The page with an attribute data-m of each measure, and the number of its measures.
    """
    count = 0

    def replacement(_: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f'<g class="measure" data-m="{first + count - 1}">'

    numbered = _MEASURE.sub(replacement, svg)
    return _INDENT.sub("><", _IDS.sub("<g class=", numbered)), count
