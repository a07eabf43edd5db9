"""The demo's section: what the shipped detector finds on pages that nobody has seen, and how right it is."""

from __future__ import annotations

from collections.abc import Sequence

from entourage.detect.detections import Detections
from entourage.detect.detector import Detector
from entourage.detect.evaluation.evaluate import known_objects
from entourage.detect.evaluation.ground_truth import TruthPage
from entourage.detect.evaluation.precision import score_pages, without_twins
from entourage.detect.report import LIKELY, draw_detections, picture
from entourage.detect.words import as_list
from entourage.report.page import Block, Section

_WIDTH = 1000  # pixels of a picture


def demo_section(pages: Sequence[TruthPage], detector: Detector | None = None) -> Section:
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
        sight = detector.look(image)
        likely = sight.found.select(sight.found.scores >= LIKELY)
        blocks.append(Block(page.name, figure=picture(draw_detections(image, likely), _WIDTH)))
        truth = without_twins(known_objects(page, "v1"))
        found = as_list(sight.found, "v1")
        everything[0].append(truth)
        everything[1].append(found)
        sure = int((found.scores >= LIKELY).sum())
        rows.append((page.name, str(len(truth)), str(sure), *_figures([truth], [found]), f"{sight.seconds:.1f}"))
    rows.append(("all", "", "", *_figures(*everything), ""))
    lead = (
        "The detector that comes with the package, on composed pages that it has not seen, one of them as if "
        "photographed. A colour a class; what is doubtful is pale. The table compares with the truth of V1's classes."
    )
    return Section("detect: every symbol, its place and its class", lead, wide=[*blocks, Block(table=rows)])


def _figures(truth: Sequence[Detections], found: Sequence[Detections]) -> tuple[str, str]:
    means = score_pages(truth, found).means()
    return f"{100 * means['mAP']:.1f}", f"{100 * means['AP50']:.1f}"
