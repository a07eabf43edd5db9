"""Log and progress line of a run."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import SGD, lines
from torch import Tensor, nn

from entourage.training import train


def test_metrics_log_of_a_run(worker: ModuleType, tmp_path: Path) -> None:
    options = replace(worker.NOISY, epochs=2, checkpoint_every=None, log_every=4)
    task = worker.Noisy()
    result = train(task, options, tmp_path, device="cpu")
    read = lines(tmp_path)
    assert [(line["step"], line["epoch"], "metrics" in line) for line in read] == [
        (4, 0, False), (6, 0, False), (6, 0, True), (8, 1, False), (12, 1, False), (12, 1, True),
    ]  # fmt: skip
    assert read[0]["lr"] == pytest.approx(0.01 * (1 + np.cos(np.pi * 0 / 9)) / 2)  # the fourth step, after the warm-up
    assert read[-1]["metrics"] == result.metrics
    assert result.best == min(line["metrics"]["error"] for line in read if "metrics" in line)
    kept = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in task.final_model().state_dict().items())


def test_logged_losses_are_means_since_the_previous_line(worker: ModuleType, tmp_path: Path) -> None:
    class Counting(worker.Rows):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            return {"part": torch.tensor(float(step)), **super().loss(model, batch, step)}

    train(Counting(), replace(SGD, log_every=4), tmp_path, device="cpu")
    assert [line["losses"]["part"] for line in lines(tmp_path)] == [1.5, 4.5, 6.5, 9.5]  # 0..3, 4..5, 6..7, 8..11


def test_tensorboard_is_written_on_request(worker: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(ValueError, match=r"^tensorboard .* expected run_dir"):
        train(worker.Rows(), replace(SGD, tensorboard=True), device="cpu")
    train(worker.Rows(), replace(SGD, tensorboard=True), tmp_path, device="cpu")
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_progress_line_is_shown_on_request(worker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    train(worker.Rows(), SGD, device="cpu")
    assert capsys.readouterr().err == ""
    train(worker.Rows(), SGD, device="cpu", progress=True, title="Learning")
    shown = capsys.readouterr().err
    assert "Learning epoch 2/2 loss" in shown
    assert "12/12" in shown
