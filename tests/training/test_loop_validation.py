"""Validation, early stopping and the final weights."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import SGD, stop_at, weights_of
from torch import nn

from entourage.training import train
from entourage.training.checkpoint import Checkpoints


def make_task_with_scores(worker: ModuleType, scores: list[float]) -> Any:
    """Return a task whose validations give these scores, one after the other."""
    task = worker.Rows()
    task.seen = []

    def validate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        task.seen.append(weights_of(model))
        return {"score": scores[len(task.seen) - 1]}

    task.validate = validate
    return task


@pytest.mark.parametrize("in_folder", [True, False])
def test_patience_stops_the_run_and_restores_the_best_weights(
    worker: ModuleType, tmp_path: Path, in_folder: bool
) -> None:
    task = make_task_with_scores(worker, [1.0, 3.0, 2.0, 3.0, 9.0])
    options = replace(SGD, epochs=9, monitor="score", patience=2, restore_best=True)
    result = train(task, options, tmp_path if in_folder else None, device="cpu")
    assert (result.stopped, result.epochs, result.steps) == ("early", 4, 24)
    assert (result.best, result.best_step, result.metrics) == (3.0, 12, {"score": 3.0})
    assert torch.equal(weights_of(task.model), task.seen[1])
    if in_folder:
        again = make_task_with_scores(worker, [])
        assert train(again, options, tmp_path, device="cpu") == result
        assert torch.equal(weights_of(again.model), task.seen[1])


def test_resumed_run_out_of_patience_makes_no_step(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(SGD, epochs=9, monitor="score", patience=1)
    task = make_task_with_scores(worker, [2.0, 1.0])
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save_final", stop_at(0))
        with pytest.raises(KeyboardInterrupt):
            train(task, options, tmp_path, device="cpu")
    continued = make_task_with_scores(worker, [])
    result = train(continued, options, tmp_path, device="cpu")
    assert (result.stopped, result.steps, result.best_step) == ("early", 12, 6)
    assert torch.equal(weights_of(continued.model), task.seen[1])


def test_last_weights_are_final_without_restore_best(worker: ModuleType, tmp_path: Path) -> None:
    task = make_task_with_scores(worker, [3.0, 1.0])
    train(task, replace(SGD, monitor="score", mode="max"), tmp_path, device="cpu")
    assert torch.equal(weights_of(task.model), task.seen[1])
    assert torch.equal(load_file(tmp_path / "best.safetensors")["weight"].flatten(), task.seen[0][:3])
    assert torch.equal(load_file(tmp_path / "model.safetensors")["weight"].flatten(), task.seen[1][:3])


@pytest.mark.parametrize(("changes", "validations"), [({"epochs": 5}, 3), ({"epochs": 5, "max_steps": 15}, 2)])
def test_validation_interval_and_end(worker: ModuleType, changes: dict[str, int], validations: int) -> None:
    task = make_task_with_scores(worker, [0.0] * 9)
    result = train(task, replace(SGD, validate_every=2, **changes), device="cpu")  # type: ignore[arg-type]
    assert len(task.seen) == validations
    assert torch.equal(task.seen[-1], weights_of(task.model))
    assert result.best is None


def test_missing_metric_is_named(worker: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"^monitor is 'recall'; expected a metric of Task.validate: no metrics"):
        train(worker.Rows(), replace(SGD, monitor="recall"), device="cpu")
