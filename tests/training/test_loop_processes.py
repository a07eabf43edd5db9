"""Training with two processes."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import assert_same_run, lines, run_worker

from entourage.training import TrainingOptions, train

TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_distributed_training(worker: ModuleType, tmp_path: Path) -> None:
    # One test, because starting the processes takes most of the time.
    status, output = run_worker("processes", tmp_path, *TWO)
    assert status == 1, output
    assert "exitcode  : -9" in output, output  # the intended kill, without an earlier error
    status, output = run_worker("continued", tmp_path, *TWO)
    assert status == 0, output
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed")
    assert_two_processes_equal_double_batches(worker, tmp_path / "rows")
    assert_two_processes_equal_accumulation(worker, tmp_path / "noisy", tmp_path / "alone")
    assert_non_finite_loss_stopped_both_processes(tmp_path)
    for rank in range(2):
        threads = json.loads((tmp_path / f"threads-{rank}.json").read_text())
        assert not [name for name in threads if "gloo" in name]  # such threads can abort the program at its end


def assert_two_processes_equal_double_batches(worker: ModuleType, both: Path) -> None:
    task = worker.Rows(batch=4)
    train(task, TrainingOptions(epochs=3, learning_rate=0.05, optimizer="sgd"), device="cpu")
    weights = load_file(both / "model.safetensors")
    torch.testing.assert_close(task.model.weight.detach(), weights["weight"])
    torch.testing.assert_close(task.model.bias.detach(), weights["bias"])


def assert_two_processes_equal_accumulation(worker: ModuleType, both: Path, alone: Path) -> None:
    train(worker.Noisy(batch_norm=False), replace(worker.NOISY, accumulate=2), alone, device="cpu")
    mine, theirs = (load_file(folder / "model.safetensors") for folder in (alone, both))
    for name, value in mine.items():
        torch.testing.assert_close(
            value, theirs[name], atol=1e-4, rtol=1e-4
        )  # Adam amplifies rounding errors of small gradients
    for one, two in zip(lines(alone), lines(both), strict=True):
        assert one["step"] == two["step"]
        if "losses" in one:
            assert one["losses"]["loss"] == pytest.approx(two["losses"]["loss"], rel=1e-3)


def assert_non_finite_loss_stopped_both_processes(folder: Path) -> None:
    output = [(folder / f"non-finite-{rank}.txt").read_text() for rank in range(2)]
    kept = f"the last good checkpoint is {folder / 'broken' / 'checkpoint.safetensors'}, of step 2;"
    assert output[0] == output[1]
    assert output[0].startswith(f"loss 'part' of step 4 is not finite; {kept}")
