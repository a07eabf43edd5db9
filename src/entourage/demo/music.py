"""Sections of the demo for `engrave`, `detect` and `read`.

- engrave: two composed pages, engraved in two fonts, with their ground truth.
- detect: detections of the included detector on composed pages, and their average precision.
- read: a composed page next to the engraving of what was read from it, and the number of notes that are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.detect.detections import Detections, to_class_list
from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.metrics import average_precision, drop_duplicates
from entourage.detect.evaluation.page_evaluation import ground_truth_detections
from entourage.detect.report import DISPLAY_THRESHOLD, boxes_figure
from entourage.engrave.dataset.formats import page_table
from entourage.engrave.dataset.inspection import draw_annotations
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.page import Page
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score
from entourage.read.reader import ScoreReader, Transcription
from entourage.read.report import engrave_pages
from entourage.report.figures import raster_figure
from entourage.report.page import Block, Section

_FONTS = ("Leipzig", "Petaluma")
_SIZE = PageOptions(width=1894, height=1000)


def engrave_section() -> Section:
    """Compose two scores and engrave a page of each, in a different font for each."""
    blocks, rows = [], [("page", "font", "symbols", "classes", "noteheads with onset, pitch and duration")]
    for index, font in enumerate(_FONTS, start=1):
        page = demo_page(index, font)
        blocks.append(Block(f"Page {index}, {font}", figure=annotated_page_figure(page)))
        heads = [s for s in page.symbols if s.label.startswith("notehead")]
        n_complete = sum(s.onset is not None and bool(s.pitch) and s.duration is not None for s in heads)
        classes = len({s.label for s in page.symbols if s.label})
        rows.append((str(index), font, str(len(page.symbols)), str(classes), f"{n_complete} of {len(heads)}"))
    lead = (
        "Two scores were composed at random and engraved in two fonts. Colours show the masks of symbols, frames their "
        "boxes; the text above a notehead is its onset, position on the staff and duration."
    )
    return Section("engrave: pages with complete ground truth", lead, wide=[*blocks, Block(table=rows)])


def demo_page(index: int, font: str) -> Page:
    """Engrave the first page of a composed score."""
    return next(VerovioEngraver(_SIZE, MusicFont(font)).engrave(parse_score(compose(5, index), f"composed {index}")))


def annotated_page_figure(page: Page) -> str:
    """Draw a page with its ground truth, as an `<svg>` element that contains an image."""
    rows = page_table(page, score="s", source="s.mxl", work="w", name="n", font="f").to_pylist()
    image: NDArray[np.uint8] = np.asarray(cv2.cvtColor(page.image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    canvas = draw_annotations(image, rows, ("boxes", "masks", "onsets"))
    height, width = canvas.shape[:2]
    png = cv2.imencode(".png", canvas, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1]
    return raster_figure(png.tobytes(), "png", width, height)


def detect_section(pages: Sequence[GroundTruthPage], detector: Detector | None = None) -> Section:
    """Detect the symbols of some pages, draw them and compute their average precision.

    Args:
        pages: pages with ground truth.
        detector: the detector; None: the included one.
    """
    detector = Detector.load() if detector is None else detector
    blocks, rows = [], [("page", "symbols", "detected", "mAP", "AP50", "seconds")]
    truths: list[Detections] = []
    predictions: list[Detections] = []
    for page in pages:
        image = page.image()
        result = detector.detect_page(image)
        shown = result.detections.select(result.detections.scores >= DISPLAY_THRESHOLD)
        blocks.append(Block(page.name, figure=boxes_figure(image, shown), legend=True))
        truth = drop_duplicates(ground_truth_detections(page, "v1"))
        predicted = to_class_list(result.detections, "v1")
        truths.append(truth)
        predictions.append(predicted)
        confident = int((predicted.scores >= DISPLAY_THRESHOLD).sum())
        precision = _average_precision([truth], [predicted])
        rows.append((page.name, str(len(truth)), str(confident), *precision, f"{result.seconds:.1f}"))
    rows.append(("all", "", "", *_average_precision(truths, predictions), ""))
    lead = (
        "Detections of the included detector on composed pages that were not used for training; one is a simulated "
        "photograph. Each class has a colour and a switch. The table evaluates the classes of V1."
    )
    return Section("detect: box and class of every symbol", lead, wide=[*blocks, Block(table=rows)])


def _average_precision(truth: Sequence[Detections], predicted: Sequence[Detections]) -> tuple[str, str]:
    means = average_precision(truth, predicted).means()
    return f"{100 * means['mAP']:.1f}", f"{100 * means['AP50']:.1f}"


def read_section(reader: ScoreReader | None = None) -> Section:
    """Read a composed page, also turned by 180 degrees, and compare the notes with the score it was engraved from.

    Args:
        reader: the reader; None: with the included detector.
    """
    reader = ScoreReader.load() if reader is None else reader
    page = demo_page(1, _FONTS[0])
    rows = [("page", "notes of the score", "notes read", "right", "measures that add up")]
    truth = Counter(_notes_of(page))
    scores = [reader.read(image) for image in (page.image, np.ascontiguousarray(page.image[::-1, ::-1]))]
    for name, score in zip(("composed", "the same page upside down"), scores, strict=True):
        read = Counter((str(note.pitch), note.onset, note.duration) for note in score.notes)
        sound = sum(not measure.problem for measure in score.measures)
        right = (truth & read).total()
        rows.append((name, str(truth.total()), str(read.total()), str(right), f"{sound} of {len(score.measures)}"))
    packed = cv2.imencode(".png", page.image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1].tobytes()
    blocks = [
        Block("The page", figure=raster_figure(packed, "png", page.image.shape[1], page.image.shape[0])),
        Block("What was read from it, engraved", figure=_engraving(scores[0])),
        Block(table=rows),
    ]
    lead = (
        "A page was engraved from a composed score, read with the included detector, and engraved again from the "
        "MusicXML. A note is right if its pitch, onset and duration are those of the score."
    )
    return Section("read: music from a page", lead, wide=blocks)


def _notes_of(page: Page) -> list[tuple[str, Fraction, Fraction]]:
    """Return pitch, onset and duration of the noteheads of an engraved page."""
    heads = [s for s in page.symbols if s.label.startswith("notehead") and s.onset is not None]
    return [(s.pitch, _fraction(s.onset), _fraction(s.duration)) for s in heads]


def _fraction(time: float | None) -> Fraction:
    return Fraction(time or 0).limit_denominator(10_000)


def _engraving(score: Transcription) -> str:
    """Return the engraving of a score of one page as an `<svg>` element; "" if nothing was read."""
    return "".join(engrave_pages(score).values()) if score.n_notes else ""
