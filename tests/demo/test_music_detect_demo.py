from __future__ import annotations

import pytest
import torch

from entourage.demo import composed_pages
from entourage.demo.music import detect_section
from entourage.detect.detections import DETECTOR_CLASSES, Detections
from entourage.detect.detector import Detector, PageDetections
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.page_evaluation import ground_truth_detections
from entourage.detect.preprocessing.page_geometry import estimate_interline


class GroundTruthDetector(Detector):
    """Detector that returns the ground truth of pages, in their order, and half of it for the last page."""

    def __init__(self, pages: list[GroundTruthPage]) -> None:
        results = [ground_truth_detections(page, "own", DETECTOR_CLASSES) for page in pages]
        half = torch.arange(len(results[-1])) % 2 == 0
        self._results = iter([*results[:-1], results[-1].select(half)])

    def detect_page(self, image: object) -> PageDetections:
        detections: Detections = next(self._results)
        return PageDetections(detections, 20.0, 0.0, 0.5)


def test_the_section_evaluates_composed_pages_with_their_ground_truth() -> None:
    pages = composed_pages()
    assert len(pages) == 3
    assert pages[0].labels == pages[2].labels
    assert abs((estimate_interline(pages[0].image()) or 0) - 20) < 0.2
    section = detect_section(pages, GroundTruthDetector(pages))
    *pictures, table = section.wide
    assert [block.title for block in pictures] == [page.name for page in pages]
    assert all(block.figure.startswith("<svg") for block in pictures)
    header, first, second, third, total = table.table
    assert header == ("page", "symbols", "detected", "mAP", "AP50", "seconds")
    assert first[3] == second[3] == "100.0"
    assert float(third[3]) < 90
    assert float(third[3]) < float(total[3]) < 100
    assert first[1] == first[2]


def test_the_included_detector_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load() -> Detector:
        calls.append(True)
        raise ValueError("no weights")

    monkeypatch.setattr(Detector, "load", load)
    with pytest.raises(ValueError, match="no weights"):
        detect_section([])
    assert calls == [True]
