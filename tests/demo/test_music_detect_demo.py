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


class Oracle(Detector):
    """Knows the truth of pages, in their order, and leaves half of it out on the last one."""

    def __init__(self, pages: list[GroundTruthPage]) -> None:
        answers = [ground_truth_detections(page, "own", DETECTOR_CLASSES) for page in pages]
        half = torch.arange(len(answers[-1])) % 2 == 0
        self._answers = iter([*answers[:-1], answers[-1].select(half)])

    def detect_page(self, image: object) -> PageDetections:
        found: Detections = next(self._answers)
        return PageDetections(found, 20.0, 0.0, 0.5)


def test_composed_pages_carry_their_truth_and_the_section_scores_against_it() -> None:
    pages = composed_pages()
    assert len(pages) == 3
    assert pages[0].labels == pages[2].labels
    assert abs((estimate_interline(pages[0].image()) or 0) - 20) < 0.2
    section = detect_section(pages, Oracle(pages))
    *pictures, table = section.wide
    assert [block.title for block in pictures] == [page.name for page in pages]
    assert all(block.figure.startswith("<svg") for block in pictures)
    header, first, second, third, total = table.table
    assert header == ("page", "symbols", "found", "mAP", "AP50", "seconds")
    assert first[3] == second[3] == "100.0"
    assert float(third[3]) < 90
    assert float(third[3]) < float(total[3]) < 100
    assert first[1] == first[2]


def test_without_weights_the_shipped_detector_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load() -> Detector:
        asked.append(True)
        raise ValueError("none here")

    monkeypatch.setattr(Detector, "load", load)
    with pytest.raises(ValueError, match="none here"):
        detect_section([])
    assert asked == [True]
