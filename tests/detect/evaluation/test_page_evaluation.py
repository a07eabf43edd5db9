from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entourage.detect.detections import DETECTOR_CLASSES, Detections
from entourage.detect.evaluation import page_evaluation as module
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.page_evaluation import (
    detect_pages,
    evaluate,
    ground_truth_detections,
    page_figures,
    write_evaluation,
)

PAPER = cv2.imencode(".png", np.full((100, 200), 255, dtype=np.uint8))[1].tobytes()
PAGE = GroundTruthPage(
    "one",
    Path("one.png"),
    20.0,
    labels=["dynamicM", "dynamicF", None, "gClefChange", "stem", "stem"],
    v1=["", "", "dynamicMF", "gClefChange", "", ""],
    extended=["dynamicM", "dynamicF", "", "clefG", "stem", "stem"],
    boxes=np.array(
        [[0, 14, 37, 37], [25, 0, 65, 48], [0, 0, 65, 48], [90, 0, 110, 60], [150, 0, 152, 60], [150, 0, 152, 60]],
        dtype=np.float32,
    ),
    packed=PAPER,
)


class FixedDetector:
    """Detector that returns the same detections for every image."""

    def __init__(self, detections: Detections) -> None:
        self.detections = detections
        self.classes = detections.classes

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        assert image.shape == (100, 200)
        return self.detections


@pytest.fixture
def oracle() -> FixedDetector:
    return FixedDetector(ground_truth_detections(PAGE, "own", DETECTOR_CLASSES))


@pytest.mark.parametrize(
    ("class_list", "names"),
    [
        ("v1", ["dynamicMF", "gClefChange"]),
        ("extended", ["clefG", "stem", "dynamicM", "dynamicF"]),
        ("muscima", ["clefG", "stem", "dynamicLetterM", "dynamicLetterF"]),
        ("own", ["stem", "dynamicM", "dynamicF", "gClefChange"]),
    ],
)
def test_perfect_detections_have_map_1_in_every_list(oracle: FixedDetector, class_list: str, names: list[str]) -> None:
    evaluation = evaluate(oracle, [PAGE], class_list)  # type: ignore[arg-type]
    assert sorted(evaluation.scores.classes) == sorted(names)
    assert evaluation.scores.means()["mAP"] == pytest.approx(1.0)
    assert evaluation.objects == len(names)  # the two stems with the same box are one object
    assert evaluation.seconds > 0


def test_pages_of_muscima_are_evaluated_with_their_classes() -> None:
    boxes = np.array([[10, 10, 30, 40], [50, 10, 52, 60]], dtype=np.float32)
    page = GroundTruthPage("hand", Path("hand.png"), 20.0, ["clefG", "stem"], ["", ""], ["", ""], boxes, PAPER)
    assert ground_truth_detections(page, "muscima").names == ["clefG", "stem"]
    detector = FixedDetector(ground_truth_detections(page, "own", DETECTOR_CLASSES))
    assert evaluate(detector, [page], "muscima").scores.means()["mAP"] == pytest.approx(1.0)


def test_missed_objects_reduce_map(oracle: FixedDetector) -> None:
    without_clef = torch.tensor([name != "gClefChange" for name in oracle.detections.names])
    oracle.detections = oracle.detections.select(without_clef)
    assert evaluate(oracle, [PAGE], "v1").scores.means()["mAP"] == pytest.approx(0.5)


def test_no_pages_and_pages_without_objects_raise(oracle: FixedDetector) -> None:
    with pytest.raises(ValueError, match="pages: is empty; expected"):
        evaluate(oracle, [])
    empty = GroundTruthPage("bare", Path("bare.png"), 20.0, [], [], [], np.zeros((0, 4), dtype=np.float32), PAPER)
    with pytest.raises(ValueError, match=r"^class_list is 'v1', .* 1 page; expected annotated pages$"):
        evaluate(oracle, [empty])


@pytest.mark.parametrize(
    ("labels", "extended", "hint"),
    [
        (["clefG", "stem"], ["", ""], "--class-list muscima or --class-list own or --model muscima"),
        (
            ["stem", "stem"],
            ["stem", "stem"],
            "--class-list extended or --class-list full or --class-list muscima or --class-list own",
        ),
    ],
)
def test_pages_without_objects_of_a_list_raise_with_the_lists_they_have(
    oracle: FixedDetector, labels: list[str | None], extended: list[str], hint: str
) -> None:
    boxes = np.array([[10, 10, 30, 40], [50, 10, 52, 60]], dtype=np.float32)
    page = GroundTruthPage("hand", Path("hand.png"), 20.0, labels, ["", ""], extended, boxes, PAPER)
    with pytest.raises(ValueError, match=f"^class_list is 'v1', .* 2 pages; expected {hint}$"):
        evaluate(oracle, [page, page])


def test_evaluation_is_written(oracle: FixedDetector, tmp_path: Path) -> None:
    evaluation = evaluate(oracle, [PAGE, PAGE], "v1")
    write_evaluation(tmp_path / "out", evaluation, "A <title>")
    read = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert read["means"]["mAP"] == pytest.approx(1.0)
    assert read["classes"]["dynamicMF"] == {"objects": 2, "AP": 1.0, "AP50": 1.0, "AP25": 1.0}
    assert read["pages"] == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "A &lt;title&gt;" in page
    assert "2 pages, 4 objects, " in page
    write_evaluation(tmp_path / "one", evaluate(oracle, [PAGE], "v1"), "One")
    assert "1 page, 2 objects, " in (tmp_path / "one" / "report.html").read_text()
    assert "dynamicMF" in page


def test_pages_are_drawn_with_missed_objects(
    oracle: FixedDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed_names: list[list[str]] = []
    draw = module.boxes_figure

    def record(image: NDArray[np.uint8], found: Detections, missed: Detections) -> str:
        missed_names.append(missed.names)
        return draw(image, found, missed)

    monkeypatch.setattr(module, "boxes_figure", record)
    monkeypatch.setattr(module, "MAX_FIGURES", 2)
    low_clef = replace(oracle.detections, scores=torch.tensor([1.0, 1.0, 0.1, 1.0, 1.0]))
    predictions = detect_pages(FixedDetector(low_clef), [PAGE, PAGE, PAGE])
    figures = page_figures(predictions, [PAGE, PAGE, PAGE], "extended")
    assert missed_names == [["clefG"], ["clefG"]]
    assert [name for name, _ in figures] == ["one", "one"]
    write_evaluation(tmp_path, evaluate(oracle, [PAGE]), "Drawn", figures)
    assert (tmp_path / "report.html").read_text().count("<image ") == 2
