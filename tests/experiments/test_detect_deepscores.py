"""The last table of chapter 6: which detectors are trained, with a recorder instead of trainings."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.detect_baseline_models import need_torchvision
from experiments.ledger import Ledger
from numpy.typing import NDArray
from tests.detect.engraved import some_pages
from tests.detect.small import small_detector

from entourage.detect.detections import Detections
from entourage.detect.evaluation.ground_truth import read_ground_truth
from entourage.detect.models.watershed import save_detector
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig
from experiments import detect_deepscores

SUMMARY = {"steps": 7, "seconds": 120.0}


class Blank:
    """Detector without detections."""

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.classes = ("staff",)

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        return Detections.empty(self.classes)


@dataclass
class Trainings:
    """Recorder of the requested trainings, in order."""

    runs: list[str] = field(default_factory=list)
    jobs: dict[str, TrainConfig] = field(default_factory=dict)
    baselines: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def trained(self, name: str, config: TrainConfig, options: argparse.Namespace) -> tuple[Blank, dict[str, Any]]:
        self.runs.append(name)
        self.jobs[name] = config
        return Blank(), SUMMARY

    def baseline(
        self, name: str, pack: str, recipe: Recipe, minutes: float, run: Path, device: str, start: object = None
    ) -> tuple[Blank, dict[str, Any]]:
        self.runs.append(run.name)
        self.baselines[run.name] = (name, pack, recipe, minutes, start)
        return Blank(f"{run.name}'s"), SUMMARY


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(some_pages(tmp_path / "data"))


@pytest.fixture
def trainings(data: str, monkeypatch: pytest.MonkeyPatch) -> Trainings:
    made = Trainings()
    monkeypatch.setattr(detect_deepscores, "train_or_load", made.trained)
    monkeypatch.setattr(detect_deepscores, "train_baseline", made.baseline)
    monkeypatch.setattr(detect_deepscores, "need_torchvision", lambda: None)
    monkeypatch.setattr(
        detect_deepscores, "packed_pages", lambda config: f"{config.classes} of {Path(config.data[0]).name}"
    )
    monkeypatch.setattr(detect_deepscores, "read_ground_truth", lambda folder, split: read_ground_truth(data, split))
    return made


def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """Run the command and return the stored rows."""
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["x", *words, *places])
    detect_deepscores.main()
    rows: dict[str, Any] = json.loads((tmp_path / "results" / "detect_deepscores.json").read_text())["rows"]
    return rows


def test_all_are_fine_tuned_for_handwriting_from_what_they_learned_of_print(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--train", data, "--test", f"clean={data}", "--minutes", "3", "--baselines", "fcos", "--muscima")
    rows = command(tmp_path, monkeypatch, *words)
    print_rows = {f"{name}: clean, {class_list}" for name in ("DWD", "fcos") for class_list in ("v1", "extended")}
    handwritten = {f"{name}: MUSCIMA++, own" for name in ("DWD", "fcos")}
    learned = {f"training of {name}" for name in ("DWD", "DWD, handwriting", "fcos", "fcos, handwriting")}
    assert set(rows) == print_rows | handwritten | learned
    own = trainings.jobs["detect_deepscores-muscima-dwd"]
    assert own.start == tmp_path / "runs" / "detect_deepscores-dwd" / "detect.safetensors"
    assert (list(own.data), own.classes, own.recipe) == (["muscima"], "muscima", Recipe.for_handwriting())
    assert trainings.baselines == {
        "detect_deepscores-fcos": ("fcos", "detector of data", Recipe(), 3.0, None),
        "detect_deepscores-muscima-fcos": (
            "fcos",
            "muscima of muscima",
            Recipe.for_handwriting(),
            3.0,
            "detect_deepscores-fcos's",
        ),
    }
    # Four trainings of two minutes, each summed once; the time of the pages is negligible.
    assert sum(row["minutes"] for row in rows.values()) == pytest.approx(8.0, abs=1.0)
    page = (tmp_path / "results" / "detect_deepscores.md").read_text()
    assert page.count(" | 2.0 |\n") == len(print_rows)
    assert page.count(" | 2.0 + 2.0 |\n") == len(handwritten)
    assert "training of" not in page
    assert "| handwritten class |" in page


def test_nothing_is_trained_for_rows_that_are_known(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--train", data, "--test", f"clean={data}", "--baselines", "retinanet", "--muscima")
    rows = command(tmp_path, monkeypatch, *words)
    trainings.runs.clear()
    assert command(tmp_path, monkeypatch, *words) == rows
    assert trainings.runs == []
    more = command(tmp_path, monkeypatch, *words[:2], "--test", f"scan={data}")  # it is found in its folder
    assert trainings.runs == ["detect_deepscores-dwd"]
    assert {key: row for key, row in more.items() if key in rows} == rows
    assert set(more) - set(rows) == {"DWD: scan, v1", "DWD: scan, extended"}
    assert not [key for key, row in more.items() if "training_minutes" in row and not key.startswith("training of")]


def test_the_shipped_detector_is_fine_tuned_without_pages_to_learn_from(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_deepscores, "find_detector", lambda model: Path(f"{model} is shipped"))
    rows = command(tmp_path, monkeypatch, "--muscima")
    assert set(rows) == {"DWD, shipped: MUSCIMA++, own", "training of DWD, shipped, handwriting"}
    assert trainings.runs == ["detect_deepscores-muscima"]
    assert trainings.jobs["detect_deepscores-muscima"].start == Path("None is shipped")
    classes = len(rows["DWD, shipped: MUSCIMA++, own"]["classes"])
    assert (
        f"| DWD, shipped | MUSCIMA++, own | 1 | {classes} | 0.0 | 0.0 | 0.0 | + 2.0 |"
        in (tmp_path / "results" / "detect_deepscores.md").read_text()
    )


def test_handwriting_alone_is_measured_after_print_was_learned(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = command(tmp_path, monkeypatch, "--train", data, "--muscima")
    assert set(rows) == {"DWD: MUSCIMA++, own", "training of DWD", "training of DWD, handwriting"}
    with pytest.raises(ValueError, match="expected --test NAME=FOLDER, or --muscima"):
        command(tmp_path, monkeypatch, "--train", data)


def test_detectors_of_the_same_file_name_have_different_rows(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        save_detector(small_detector(("staff",)), Path(folder) / "detect.safetensors")
        rows = command(
            tmp_path, monkeypatch, "--model", f"{folder}/detect.safetensors", "--test", f"x={data}", "--muscima"
        )
    for folder in ("a", "b"):
        for test in ("x, v1", "x, extended", "MUSCIMA++, own"):
            assert f"DWD, {folder}/detect.safetensors: {test}" in rows
    started = [str(trainings.jobs[run].start) for run in trainings.runs]
    assert started == ["a/detect.safetensors", "b/detect.safetensors"]
    assert len(set(trainings.runs)) == 2
    assert not any("/" in run for run in trainings.runs)


def test_a_row_with_its_own_training_minutes_is_used(tmp_path: Path) -> None:
    book = Ledger("toy", tmp_path)
    figures = {"pages": 1, "classes": {"stem": [1, 0.5, 0.5, 0.5]}, **dict.fromkeys(("mAP", "AP50", "AP25"), 0.5)}
    book.add("DWD: clean, v1", {**figures, "steps": 7, "training_minutes": 3.0}, 1.0)
    assert "| DWD | clean, v1 | 1 | 1 | 50.0 | 50.0 | 50.0 | 3.0 |" in detect_deepscores._text(book)


def test_handwriting_has_the_minutes_of_both_trainings(tmp_path: Path) -> None:
    book = Ledger("toy", tmp_path)
    figures = {"pages": 1, "classes": {"stem": [1, 0.5, 0.5, 0.5]}, **dict.fromkeys(("mAP", "AP50", "AP25"), 0.5)}
    book.add("training of DWD", {"steps": 7, "training_minutes": 3.0}, 1.0)
    for name, minutes in (("DWD", 1.6), ("DWD, shipped", 3.9)):
        book.add(f"training of {name}, handwriting", {"steps": 7, "training_minutes": minutes}, 1.0)
        book.add(f"{name}: MUSCIMA++, own", figures, 1.0)
    text = detect_deepscores._text(book)
    assert "| DWD | MUSCIMA++, own | 1 | 1 | 50.0 | 50.0 | 50.0 | 3.0 + 1.6 |" in text
    assert "| DWD, shipped | MUSCIMA++, own | 1 | 1 | 50.0 | 50.0 | 50.0 | + 3.9 |" in text


def test_the_shipped_detector_has_another_name_than_the_trained_one() -> None:
    def named(**more: object) -> str:
        return detect_deepscores.name_of(argparse.Namespace(**{"train": [], "model": None, **more}))

    assert named(train=["pages"]) == "DWD"
    assert named() == "DWD, shipped"
    assert named(train=["pages"], model="runs/mine.safetensors") == "DWD, runs/mine.safetensors"
    assert "DWD, shipped: clean, v1" in Ledger("detect_deepscores").rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--baselines", "fcos,yolo"), "--baselines: 'yolo' is unknown; expected some of faster-rcnn, retinanet, fcos"),
        (("--baselines", "fcos"), "--train: missing with --baselines; expected folders"),
    ],
)
def test_baselines_are_checked_first(
    words: tuple[str, ...],
    message: str,
    data: str,
    trainings: Trainings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = ("--train", data) if "unknown" in message else ()
    with pytest.raises(ValueError, match=message):
        command(tmp_path, monkeypatch, *train, "--test", f"clean={data}", *words)
    assert trainings.runs == []
    assert not (tmp_path / "results").exists()


def test_baselines_without_torchvision_are_rejected_before_training(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_deepscores, "need_torchvision", need_torchvision)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models.detection", None)
    words = ("--train", data, "--test", f"clean={data}")
    with pytest.raises(ValueError, match="torchvision: cannot be imported; expected"):
        command(tmp_path, monkeypatch, *words, "--baselines", "fcos")
    assert trainings.runs == []
    assert not (tmp_path / "results").exists()
    assert command(tmp_path, monkeypatch, *words)  # not needed without baselines


def test_a_rehearsal_is_kept_apart(
    data: str, trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--train", data, "--test", f"clean={data}", "--baselines", "fcos", "--muscima")
    command(tmp_path, monkeypatch, *words, "--small")
    assert trainings.jobs["detect_deepscores-muscima-dwd"].start == (
        tmp_path / "runs" / "small-detect_deepscores-dwd" / "detect.safetensors"
    )
    assert set(trainings.baselines) == {"small-detect_deepscores-fcos", "small-detect_deepscores-muscima-fcos"}
    assert {minutes for _, _, _, minutes, _ in trainings.baselines.values()} == {detect_deepscores.REHEARSAL_MINUTES}
    with pytest.raises(ValueError, match="small True, now None; expected the same settings or another folder"):
        command(tmp_path, monkeypatch, *words)
