from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.detect.engraved import some_pages
from tests.detect.small import small_detector
from tests.detect.synthetic import staff_page
from typer.testing import CliRunner

from entourage.cli.main import app, main
from entourage.detect import WatershedDetector, load_detector, save_detector
from entourage.detect import detector as module
from entourage.detect.detections import Detections
from entourage.detect.detector import PageDetections
from entourage.detect.options import DetectorOptions, NetworkOptions

CLASSES = ("noteheadBlackOnLine", "restQuarter", "flag8thUp", "staff")


@pytest.fixture
def model(tmp_path: Path) -> str:
    torch.manual_seed(0)
    options = DetectorOptions(network=NetworkOptions(widths=(8, 8), blocks=(1, 1), upwards=(8, 8), hidden=8))
    save_detector(WatershedDetector(CLASSES, options), tmp_path / "m.safetensors")
    return str(tmp_path / "m.safetensors")


def test_run_skips_broken_pages_with_exit_code_1(tmp_path: Path, model: str) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    Image.fromarray(staff_page(height=300, width=300, staves=1)).save(folder / "a.png")
    arguments = ["detect", "run", str(folder), "--out", str(tmp_path / "out"), "--model", model, "--device", "cpu"]
    complete = CliRunner().invoke(app, arguments)
    assert complete.exit_code == 0, complete.output
    assert complete.output.startswith("1 page, ")
    assert (tmp_path / "out" / "coco.json").is_file()
    Image.new("L", (300, 300), 255).save(folder / "white.png")
    white = CliRunner().invoke(app, arguments)
    message = f"entourage: note: no detections on 2 pages; see {tmp_path / 'out' / 'pages.csv'}\n"
    assert (white.exit_code, white.stderr) == (0, message)
    (folder / "white.png").unlink()
    (folder / "broken.png").write_bytes(b"no image")
    mixed = CliRunner().invoke(app, [*arguments, "--class-list", "v1", "--no-draw"])
    assert mixed.exit_code == 1
    assert f"skipped {folder / 'broken.png'}: not an image" in mixed.output
    (folder / "broken.png").unlink()
    mistyped = CliRunner().invoke(app, [*arguments[:3], str(folder / "b.png"), *arguments[3:]])
    assert mistyped.exit_code == 1
    assert mistyped.output.startswith("1 page, ")
    assert f"skipped {folder / 'b.png'}: does not exist" in mistyped.output


def test_run_notes_detections_that_the_class_list_lacks(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = torch.tensor([[30.0, 40, 200, 120], [50, 60, 60, 70], [90, 60, 99, 70]])
    found = Detections(boxes, torch.tensor([4, 1, 4]), torch.full((3,), 0.9), CLASSES)  # V1 has no staves
    monkeypatch.setattr(module.Detector, "detect_prepared", lambda *_: PageDetections(found, 20.0, 0.0, 0.1))
    Image.fromarray(staff_page(height=300, width=300, staves=1)).save(tmp_path / "a.png")
    arguments = ["detect", "run", str(tmp_path / "a.png"), "--out", str(tmp_path / "out"), "--model", model]
    result = CliRunner().invoke(app, [*arguments, "--class-list", "v1", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "1 page, 1 symbol: " in result.output
    assert result.stderr.startswith("entourage: note: 2 detections left out")
    assert result.stderr.endswith("--class-list own has all classes\n")
    assert CliRunner().invoke(app, [*arguments, "--device", "cpu"]).stderr == ""


def test_eval_writes_an_evaluation(tmp_path: Path, model: str) -> None:
    data = some_pages(tmp_path / "data")
    arguments = ["detect", "eval", str(data), "--model", model, "--class-list", "extended", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "mean over classes: mAP " in result.output
    assert "1 page, " in result.output
    read = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (read["model"], read["split"]) == (model, "test")


@pytest.mark.parametrize("command", ["run", "eval", "train"])
def test_help_names_the_included_detectors(command: str) -> None:
    message = CliRunner().invoke(app, ["detect", command, "--help"], env={"COLUMNS": "200"}).output
    (line,) = (line for line in message.splitlines() if "--from" in line or "--model" in line)
    assert module.shipped_detectors()
    assert all(name in line for name in module.shipped_detectors())


def test_invalid_input_is_one_line_with_exit_code_2(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "weight_folders", lambda: [tmp_path / "nowhere"])
    data = some_pages(tmp_path / "data", train=1, val=0, test=0)
    Image.fromarray(staff_page(height=300, width=300, staves=1)).save(tmp_path / "a.png")
    train = ["train", str(tmp_path)]
    wrong = (
        ([*train, "--from", model, "--preset", "default"], "--from and --preset: both given; expected one"),
        ([*train, "--steps", "2", "--minutes", "1"], "--steps and --minutes: both given; expected one"),
        (["run", str(tmp_path / "absent.png"), "--model", model], "does not exist"),
        (["run", str(tmp_path / "a.png")], "detector"),
        (["run", str(tmp_path / "a.png"), "--model", str(tmp_path / "a.png")], "a.png"),
        (["eval", str(tmp_path / "absent"), "--model", model], "absent"),
        (["eval", str(data), "--model", model], "--split all"),
    )
    for arguments, line in wrong:
        monkeypatch.setattr(sys, "argv", ["entourage", "detect", *arguments, "--out", str(tmp_path / "out")])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        message = capsys.readouterr().err
        assert line in message
        assert message.count("\n") == 1


def test_train_writes_a_detector(tmp_path: Path) -> None:
    data = some_pages(tmp_path / "data", train=2)
    start = tmp_path / "start.safetensors"
    save_detector(small_detector(("stem", "coda")), start)
    common = ["detect", "train", str(data), "--out", str(tmp_path / "run"), "--from", str(start), "--device", "cpu"]
    (tmp_path / "options.toml").write_text('[recipe]\nsteps = 9\nbatch = 1\ndegradation = "none"\nvalidation = 1\n')
    common += ["--config", str(tmp_path / "options.toml")]
    result = CliRunner().invoke(app, [*common, "--steps", "1"])
    assert result.exit_code == 0, result.output
    assert "step 1 of 1: map" in result.output
    assert f"2 pages, 1 step, mAP 0.0%, AP50 0.0%: {tmp_path / 'run' / 'detect.safetensors'}" in result.output
    detector = load_detector(tmp_path / "run" / "detect.safetensors")
    assert len(detector.classes) == 153
    other = CliRunner().invoke(app, [*common, "--steps", "2"])
    assert other.exit_code != 0  # the folder holds another run
