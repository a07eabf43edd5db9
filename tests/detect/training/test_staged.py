from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.detect.small import PLAIN, small_data, small_detector

from entourage.detect.models.losses import TERMS
from entourage.detect.training.staged import STAGES, Stage, train_in_stages
from entourage.detect.training.task import DetectionTask


def make(folder: Path) -> DetectionTask:
    validation, pack = small_data(folder)
    recipe = replace(PLAIN, steps=20, batch=1, epoch=20)
    return DetectionTask(small_detector(pack.classes), pack, validation, recipe)


def test_the_stages_follow_the_thesis() -> None:
    names = [stage.name for stage in STAGES]
    assert names == ["patches", "segmentation", "energy", "class", "box", "energy again", "all"]
    assert sum(stage.fraction for stage in STAGES) == pytest.approx(1.0)
    assert [stage.terms for stage in STAGES[2:]] == [("energy",), ("class",), ("box",), ("energy",), TERMS]


def test_all_stages_train_one_detector_and_a_second_call_does_not_train_again(tmp_path: Path) -> None:
    task = make(tmp_path / "data")
    before = task.detector.network.energy.weight.clone()
    detector, result = train_in_stages(task, run_dir=tmp_path / "run", device="cpu", progress=False)
    assert result.steps == 20  # 2, 3, 3, 3, 3, 2 and 4 of 20: rounding halves to even
    assert "map" in result.metrics
    assert not torch.equal(detector.network.energy.weight, before)
    assert len(list((tmp_path / "run").glob("stage-*"))) == 7
    again, second = train_in_stages(make(tmp_path / "more"), run_dir=tmp_path / "run", device="cpu", progress=False)
    assert second.steps == result.steps
    assert torch.equal(again.network.energy.weight, detector.network.energy.weight)


def test_the_last_stage_must_train_the_detector(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stages: the last stage has no losses; expected a last stage"):
        train_in_stages(make(tmp_path / "data"), (Stage("patches", 1.0),), device="cpu")
