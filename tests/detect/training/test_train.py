from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.detect.engraved import some_pages
from tests.detect.small import OPTIONS, RECIPE, small_detector
from torch import nn

from entourage.detect import detector as detector_module
from entourage.detect.detections import DETECTOR_CLASSES
from entourage.detect.evaluation.ground_truth import read_ground_truth
from entourage.detect.models.watershed import WatershedDetector, load_detector, save_detector
from entourage.detect.options import GROUPS
from entourage.detect.training import task as task_module
from entourage.detect.training.task import DetectionTask, WindowSample
from entourage.detect.training.train import TrainConfig, relabel_pages, train_detector, transfer_weights
from entourage.symbols import V1_IDS
from entourage.training.task import Losses


def make_config(tmp_path: Path, **changes: object) -> TrainConfig:
    data = tmp_path / "data"
    if not data.exists():
        some_pages(data)
    default = TrainConfig([data], tmp_path / "run", options=OPTIONS, recipe=RECIPE, device="cpu", progress=False)
    return replace(default, **changes)  # type: ignore[arg-type]


def test_training_writes_a_detector_with_notes_and_a_summary(tmp_path: Path) -> None:
    lines: list[str] = []
    summary = train_detector(make_config(tmp_path, log=lines.append))
    assert (summary["pages"], summary["steps"], summary["classes"]) == (4, 4, 153)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    detector = load_detector(tmp_path / "run" / "detect.safetensors")
    assert detector.classes == DETECTOR_CLASSES
    assert detector.notes["pages"] == "4"
    assert detector.notes["steps"] == "4"
    assert detector.typical_sizes is not None  # 24 x 20 pixels at twice the working interline
    assert detector.typical_sizes[DETECTOR_CLASSES.index("noteheadBlackOnLine")].tolist() == [12, 10]
    assert detector.typical_sizes[DETECTOR_CLASSES.index("coda")].isnan().all()
    assert len(lines) == 2  # after each epoch of two steps
    before = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    assert train_detector(make_config(tmp_path)) == summary  # a second call does not train again
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == before


def test_an_interrupted_run_is_resumed_within_its_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "CHECKPOINT_STEPS", 2)
    six_steps = replace(RECIPE, steps=6, epoch=6, validation=0)
    steps: list[int] = []
    loss = DetectionTask.loss

    def interrupt_at_the_fourth_call(task: DetectionTask, model: nn.Module, batch: WindowSample, step: int) -> Losses:
        steps.append(step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return loss(task, model, batch, step)

    monkeypatch.setattr(DetectionTask, "loss", interrupt_at_the_fourth_call)
    with pytest.raises(KeyboardInterrupt):
        train_detector(make_config(tmp_path, recipe=six_steps))
    assert train_detector(make_config(tmp_path, recipe=six_steps))["steps"] == 6
    assert steps == [0, 1, 2, 3, 2, 3, 4, 5]


def test_a_time_limit_sets_the_steps(tmp_path: Path) -> None:
    summary = train_detector(make_config(tmp_path, minutes=0.02, recipe=replace(RECIPE, steps=10**6, validation=0)))
    plan = json.loads((tmp_path / "run" / "steps.json").read_text())
    assert summary["steps"] == plan["steps"] < 10**4


def test_a_time_limit_cannot_be_changed(tmp_path: Path) -> None:
    no_validation = replace(RECIPE, validation=0)
    first = train_detector(make_config(tmp_path, minutes=0.02, recipe=no_validation))
    assert train_detector(make_config(tmp_path, minutes=0.02, recipe=no_validation)) == first
    with pytest.raises(ValueError, match=rf"run holds a run with minutes 0.02 \({first['steps']} steps\), now 5; "):
        train_detector(make_config(tmp_path, minutes=5.0, recipe=no_validation))


def test_training_in_stages(tmp_path: Path) -> None:
    train_detector(make_config(tmp_path, staged=True))
    assert (tmp_path / "run" / "stage-6-all").is_dir()
    assert (tmp_path / "run" / "detect.safetensors").is_file()


def test_v1_has_entire_dynamics_as_classes(tmp_path: Path) -> None:
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    (page, *_) = relabel_pages(pages, "v1")
    assert page.labels[:2] == [None, "dynamicPP"]
    assert relabel_pages(pages, "detector") == pages
    before = torch.random.get_rng_state()
    summary = train_detector(make_config(tmp_path, classes="v1", recipe=replace(RECIPE, steps=1)))
    assert summary["classes"] == len(V1_IDS)
    assert torch.equal(torch.random.get_rng_state(), before)  # the global random state is unchanged


def test_weights_of_common_classes_are_transferred() -> None:
    old = small_detector(("stem", "coda", "segno"), seed=1)
    new = transfer_weights(old, ("coda", "gClef"))
    assert new.classes == ("coda", "gClef")
    assert torch.equal(new.network.head.classes.weight[0], old.network.head.classes.weight[1])
    assert torch.equal(new.network.energy.weight, old.network.energy.weight)
    assert torch.equal(new.network.head.boxes.weight, old.network.head.boxes.weight)
    assert new.options == old.options
    assert transfer_weights(old, ("stem", "coda", "segno")) is old


def test_training_starts_from_another_detector(tmp_path: Path) -> None:
    start = small_detector(("stem", "coda"), seed=5)
    save_detector(start, tmp_path / "start.safetensors")
    frozen = replace(RECIPE, learning_rate=1e-12, average=0.0)
    train_detector(make_config(tmp_path, start=tmp_path / "start.safetensors", recipe=frozen))
    trained = load_detector(tmp_path / "run" / "detect.safetensors")
    assert trained.notes["preset"] == "as in start.safetensors"
    assert torch.allclose(trained.network.energy.weight, start.network.energy.weight, atol=1e-5)
    stem = DETECTOR_CLASSES.index("stem")
    assert torch.allclose(trained.network.head.classes.weight[stem], start.network.head.classes.weight[0], atol=1e-5)


def test_training_starts_from_a_shipped_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector_module, "weight_folders", lambda: [tmp_path])
    start = small_detector(("stem", "coda"), seed=5)
    files = save_detector(start, tmp_path / "detect.safetensors", max_shard_size=10_000)
    assert len(files) > 1
    frozen = replace(RECIPE, steps=1, learning_rate=1e-12, average=0.0)
    # The command line passes names as paths; the path of a shipped file is equivalent to its name.
    for number, name in enumerate(("default", Path("default"), tmp_path / "detect.safetensors", files[1])):
        out = tmp_path / f"run-{number}"
        train_detector(make_config(tmp_path, start=name, recipe=frozen, out=out))
        trained = load_detector(out / "detect.safetensors")
        assert torch.allclose(trained.network.energy.weight, start.network.energy.weight, atol=1e-5)
        assert trained.notes["preset"] == "as in default"


def test_invalid_paths_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file: .*; expected a folder to write to"):
        train_detector(make_config(tmp_path, out=tmp_path / "file"))
    with pytest.raises(
        ValueError, match=r"nowhere: .*; expected a folder with symbols\.parquet, MUSCIMA\+\+ or DeepScoresV2"
    ):
        train_detector(make_config(tmp_path, data=[tmp_path / "nowhere"]))


def test_classes_that_are_added_get_the_channels_of_the_default_groups() -> None:
    older = tuple(tuple(name for name in group if "bar" not in name and "bracket" not in name) for group in GROUPS)
    options = replace(OPTIONS, maps=replace(OPTIONS.maps, groups=older))
    new = transfer_weights(WatershedDetector(("stem", "staff"), options), ("stem", "staff", "barlineSingle", "rest8th"))
    stem, staff, barline, rest = new.groups[1:].tolist()
    assert barline == staff != stem
    assert rest == 0
