"""The demo's section: two composed pages, engraved in two fonts, with their ground truth drawn.

The demo's section: what the shipped detector finds on pages that nobody has seen, and how right it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.detect.detections import Detections, to_class_list
from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.metrics import average_precision, drop_duplicates
from entourage.detect.evaluation.page_evaluation import ground_truth_detections
from entourage.detect.report import DISPLAY_THRESHOLD, draw_detections, page_figure
from entourage.engrave.dataset.formats import page_table
from entourage.engrave.dataset.inspection import draw_annotations
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.page import Page
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score
from entourage.report.figures import raster_figure
from entourage.report.page import Block, Section

_FONTS = ("Leipzig", "Petaluma")
_SIZE = PageOptions(width=1894, height=1000)


def engrave_section() -> Section:
    """Composes two scores and engraves a page of each in a font of its own."""
    blocks, rows = [], [("page", "font", "symbols", "classes", "noteheads with onset, pitch and duration")]
    for index, font in enumerate(_FONTS, start=1):
        page = demo_page(index, font)
        blocks.append(Block(f"Page {index}, {font}", figure=annotated_page_figure(page)))
        heads = [s for s in page.symbols if s.label.startswith("notehead")]
        n_complete = sum(s.onset is not None and bool(s.pitch) and s.duration is not None for s in heads)
        classes = len({s.label for s in page.symbols if s.label})
        rows.append((str(index), font, str(len(page.symbols)), str(classes), f"{n_complete} of {len(heads)}"))
    lead = (
        "Two scores were composed at random and engraved in two fonts. Colours are the masks of symbols, frames their "
        "boxes; above noteheads stand onset, position on the staff and duration."
    )
    return Section("engrave: pages that know what is on them", lead, wide=[*blocks, Block(table=rows)])


def demo_page(index: int, font: str) -> Page:
    """The first page of a composed score."""
    return next(VerovioEngraver(_SIZE, MusicFont(font)).engrave(parse_score(compose(5, index), f"composed {index}")))


def annotated_page_figure(page: Page) -> str:
    """The page with its ground truth, as an `<svg>` element that holds an image."""
    rows = page_table(page, score="s", source="s.mxl", work="w", name="n", font="f").to_pylist()
    image: NDArray[np.uint8] = np.asarray(cv2.cvtColor(page.image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    canvas = draw_annotations(image, rows, ("boxes", "masks", "onsets"))
    height, width = canvas.shape[:2]
    png = cv2.imencode(".png", canvas, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1]
    return raster_figure(png.tobytes(), "png", width, height)


_WIDTH = 1000  # pixels of a picture


def detect_section(pages: Sequence[GroundTruthPage], detector: Detector | None = None) -> Section:
    """Finds the symbols of some pages, draws them and compares them with the truth.

    Args:
        pages: with truth.
        detector: the shipped one if left out.
    """
    detector = Detector.load() if detector is None else detector
    blocks, rows = [], [("page", "symbols", "found", "mAP", "AP50", "seconds")]
    everything: tuple[list[Detections], list[Detections]] = ([], [])
    for page in pages:
        image = page.image()
        result = detector.detect_page(image)
        likely = result.detections.select(result.detections.scores >= DISPLAY_THRESHOLD)
        blocks.append(Block(page.name, figure=page_figure(draw_detections(image, likely), _WIDTH)))
        truth = drop_duplicates(ground_truth_detections(page, "v1"))
        found = to_class_list(result.detections, "v1")
        everything[0].append(truth)
        everything[1].append(found)
        sure = int((found.scores >= DISPLAY_THRESHOLD).sum())
        rows.append((page.name, str(len(truth)), str(sure), *_figures([truth], [found]), f"{result.seconds:.1f}"))
    rows.append(("all", "", "", *_figures(*everything), ""))
    lead = (
        "The detector that comes with the package, on composed pages that it has not seen, one of them as if "
        "photographed. A colour a class; what is doubtful is pale. The table compares with the truth of V1's classes."
    )
    return Section("detect: every symbol, its place and its class", lead, wide=[*blocks, Block(table=rows)])


def _figures(truth: Sequence[Detections], found: Sequence[Detections]) -> tuple[str, str]:
    means = average_precision(truth, found).means()
    return f"{100 * means['mAP']:.1f}", f"{100 * means['AP50']:.1f}"
