from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entourage.detect.detections import DETECTOR_CLASSES, Detections
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


class Oracle:
    """Finds what its answer says, whatever it is shown."""

    def __init__(self, answer: Detections) -> None:
        self.answer = answer
        self.classes = answer.classes

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        assert image.shape == (100, 200)
        return self.answer


@pytest.fixture
def oracle() -> Oracle:
    return Oracle(ground_truth_detections(PAGE, "own", DETECTOR_CLASSES))


@pytest.mark.parametrize(
    ("class_list", "names"),
    [
        ("v1", ["dynamicMF", "gClefChange"]),
        ("extended", ["clefG", "stem", "dynamicM", "dynamicF"]),
        ("muscima", ["clefG", "stem", "dynamicLetterM", "dynamicLetterF"]),
        ("own", ["stem", "dynamicM", "dynamicF", "gClefChange"]),
    ],
)
def test_perfect_answers_score_100_in_every_list(oracle: Oracle, class_list: str, names: list[str]) -> None:
    evaluation = evaluate(oracle, [PAGE], class_list)  # type: ignore[arg-type]
    assert sorted(evaluation.scores.classes) == sorted(names)
    assert evaluation.scores.means()["mAP"] == pytest.approx(1.0)
    assert evaluation.objects == len(names)  # the two stems in one place are one
    assert evaluation.seconds > 0


def test_pages_of_muscima_are_judged_by_their_own_names() -> None:
    boxes = np.array([[10, 10, 30, 40], [50, 10, 52, 60]], dtype=np.float32)
    page = GroundTruthPage("hand", Path("hand.png"), 20.0, ["clefG", "stem"], ["", ""], ["", ""], boxes, PAPER)
    assert ground_truth_detections(page, "muscima").names == ["clefG", "stem"]
    detector = Oracle(ground_truth_detections(page, "own", DETECTOR_CLASSES))
    assert evaluate(detector, [page], "muscima").scores.means()["mAP"] == pytest.approx(1.0)


def test_what_is_missed_costs(oracle: Oracle) -> None:
    oracle.answer = oracle.answer.select(torch.tensor([name != "gClefChange" for name in oracle.answer.names]))
    assert evaluate(oracle, [PAGE], "v1").scores.means()["mAP"] == pytest.approx(0.5)


def test_no_pages_and_pages_without_truth_are_named(oracle: Oracle) -> None:
    with pytest.raises(ValueError, match="no page to evaluate"):
        evaluate(oracle, [])
    empty = GroundTruthPage("bare", Path("bare.png"), 20.0, [], [], [], np.zeros((0, 4), dtype=np.float32), PAPER)
    with pytest.raises(ValueError, match=r"^the 1 page holds nothing of the list 'v1'; expected annotated pages$"):
        evaluate(oracle, [empty])


@pytest.mark.parametrize(
    ("labels", "extended", "hint"),
    [
        (["clefG", "stem"], ["", ""], "--class-list muscima or --class-list own or --model muscima"),
        (["stem", "stem"], ["stem", "stem"], "--class-list extended or --class-list muscima or --class-list own"),
    ],
)
def test_pages_with_nothing_of_a_list_tell_what_they_hold(
    oracle: Oracle, labels: list[str | None], extended: list[str], hint: str
) -> None:
    boxes = np.array([[10, 10, 30, 40], [50, 10, 52, 60]], dtype=np.float32)
    page = GroundTruthPage("hand", Path("hand.png"), 20.0, labels, ["", ""], extended, boxes, PAPER)
    with pytest.raises(ValueError, match=f"^the 2 pages hold nothing of the list 'v1'; expected {hint}$"):
        evaluate(oracle, [page, page])


def test_written_figures_are_those_of_the_evaluation(oracle: Oracle, tmp_path: Path) -> None:
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


def test_pages_are_drawn_with_what_was_missed(oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[list[str]] = []
    evaluate_module = importlib.import_module(
        "entourage.detect.evaluation.page_evaluation"
    )  # the function has this name too
    monkeypatch.setattr(evaluate_module, "draw_missed", lambda drawn, missed: lost.append(missed.names) or drawn)
    monkeypatch.setattr(evaluate_module, "MAX_FIGURES", 2)
    half = replace(oracle.answer, scores=torch.tensor([1.0, 1.0, 0.1, 1.0, 1.0]))  # not sure of the clef
    seen = detect_pages(Oracle(half), [PAGE, PAGE, PAGE])
    pictures = page_figures(seen, [PAGE, PAGE, PAGE], "extended")
    assert lost == [["clefG"], ["clefG"]]
    assert [name for name, _ in pictures] == ["one", "one"]
    write_evaluation(tmp_path, evaluate(oracle, [PAGE]), "Drawn", pictures)
    assert (tmp_path / "report.html").read_text().count("<image ") == 2
