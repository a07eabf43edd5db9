"""Resuming runs that were killed, stopped or finished."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.training.runs import SGD, assert_same_run, run_worker, stop_at, weights_of
from torch import Tensor, nn

from entourage.runs.directory import lock_directory, try_lock
from entourage.training import train


def test_killed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    status, output = run_worker("kill", tmp_path)
    assert status == 0, output
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed")
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed-at-random")


def test_finished_run_loads_its_weights(worker: ModuleType, tmp_path: Path) -> None:
    first, second = worker.Noisy(), worker.Noisy()
    result = train(first, worker.NOISY, tmp_path, device="cpu")

    def fail(*_: Any) -> None:
        raise AssertionError

    second.plan = second.load = second.loss = second.validate = fail
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert train(second, worker.NOISY, tmp_path, device="cpu") == result
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert torch.equal(weights_of(first.final_model()), weights_of(second.final_model()))
    assert torch.equal(weights_of(first.model), weights_of(second.model))
    assert not second.final_model().training


def test_different_configuration_raises(worker: ModuleType, tmp_path: Path) -> None:
    train(worker.Rows(), SGD, tmp_path, device="cpu")
    with pytest.raises(ValueError, match=f"^{tmp_path} holds a run with learning_rate 0.1, now 0.2; "):
        train(worker.Rows(), replace(SGD, learning_rate=0.2), tmp_path, device="cpu")
    with pytest.raises(ValueError, match="holds a run with task 'Rows', now 'Noisy'"):
        train(worker.Noisy(), SGD, tmp_path, device="cpu")
    train(worker.Rows(), replace(SGD, workers=0), tmp_path, device="cpu")


def test_locked_run_directory_raises(worker: ModuleType, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with try_lock(run / "run"), pytest.raises(ValueError, match=r"run: .*; wait for it"):
        train(worker.Rows(), SGD, run, device="cpu")
    assert list(run.iterdir()) == []
    train(worker.Rows(), SGD, run, device="cpu")
    assert not [path for path in run.iterdir() if path.name.endswith(".claim")]


def test_run_finished_by_another_process_is_not_repeated(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, other, late = worker.Noisy(), worker.Noisy(), worker.Noisy()
    stopped.after_step = stop_at(6)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, worker.NOISY, tmp_path, device="cpu")

    @contextmanager
    def lock_after_other_process(path: Path) -> Iterator[None]:
        monkeypatch.setattr("entourage.training.loop.lock_directory", lock_directory)
        train(other, worker.NOISY, tmp_path, device="cpu")
        with lock_directory(path):
            yield

    monkeypatch.setattr("entourage.training.loop.lock_directory", lock_after_other_process)
    late.loss = lambda *_: pytest.fail("a step was made again")
    train(late, worker.NOISY, tmp_path, device="cpu")
    assert torch.equal(weights_of(late.final_model()), weights_of(other.final_model()))


def test_finished_run_needs_no_lock(worker: ModuleType, tmp_path: Path) -> None:
    result = train(worker.Rows(), SGD, tmp_path, device="cpu")
    with try_lock(tmp_path / "run"):
        assert train(worker.Rows(), SGD, tmp_path, device="cpu") == result


def test_resume_with_tied_weights_and_channels_last(worker: ModuleType, tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one = nn.Conv2d(3, 3, 1, dtype=torch.float64).to(memory_format=torch.channels_last)
            self.two = nn.Conv2d(3, 3, 1, dtype=torch.float64)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x[:, :, None, None]).relu()).sum(dim=1).flatten(1)

    options = replace(SGD, optimizer="adam", checkpoint_every=5)
    uninterrupted = worker.Rows(model=Tied())
    train(uninterrupted, options, device="cpu")
    stopped = worker.Rows(model=Tied())
    stopped.after_step = stop_at(8)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, options, tmp_path, device="cpu")
    continued = worker.Rows(model=Tied())
    train(continued, options, tmp_path, device="cpu")
    assert continued.model.one.weight is continued.model.two.weight
    assert torch.equal(weights_of(continued.model), weights_of(uninterrupted.model))
