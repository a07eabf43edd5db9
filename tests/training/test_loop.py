"""Steps of a run: closed forms, gradients, precision and hooks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.runs import SGD, weights_of
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.training import train


def test_steps_match_the_closed_form(worker: ModuleType) -> None:
    class Line(worker.Rows):  # type: ignore[misc, name-defined]
        def plan(self, epoch: int) -> Sequence[Any]:
            return [np.arange(24)]

    task = Line(model=nn.Linear(3, 1, bias=False).double())
    options = replace(SGD, epochs=2, momentum=0.5, weight_decay=0.2, schedule="linear")
    w, x, y = task.model.weight.detach().clone(), task.x, task.y
    buffer = torch.zeros_like(w)
    for rate in (0.1, 0.05):
        gradient = 2 / 24 * (x @ w.T - y).T @ x + 0.2 * w
        buffer = gradient if not buffer.any() else 0.5 * buffer + gradient
        w = w - rate * buffer
    result = train(task, options, device="cpu")
    torch.testing.assert_close(task.model.weight.detach(), w)
    assert (result.steps, result.epochs, result.stopped) == (2, 2, "done")


def test_accumulation_equals_one_large_batch(worker: ModuleType) -> None:
    small, large = worker.Rows(batch=2), worker.Rows(batch=8)
    train(small, replace(SGD, accumulate=4), device="cpu")
    result = train(large, SGD, device="cpu")
    assert result.steps == 6
    torch.testing.assert_close(weights_of(small.model), weights_of(large.model))  # float64: 1e-7 of rounding


def test_clipped_gradient_has_the_maximum_norm(worker: ModuleType) -> None:
    task = worker.Rows()
    before = weights_of(task.model)
    train(task, replace(SGD, max_steps=1, clip_norm=0.01), device="cpu")
    torch.testing.assert_close((weights_of(task.model) - before).norm(), torch.tensor(0.001, dtype=torch.float64))


def test_groups_use_their_learning_rate(worker: ModuleType) -> None:
    task = worker.Rows()
    task.parameter_groups = lambda: [
        {"params": [task.model.weight]},
        {"params": [task.model.bias], "lr_scale": 0.0},
    ]
    before = task.model.weight.detach().clone(), task.model.bias.detach().clone()
    train(task, SGD, device="cpu")
    assert not torch.equal(task.model.weight, before[0])
    assert torch.equal(task.model.bias, before[1])


def test_threads_and_run_directory_do_not_change_weights(worker: ModuleType, tmp_path: Path) -> None:
    tasks = [worker.Noisy() for _ in range(3)]
    train(tasks[0], worker.NOISY, tmp_path, device="cpu")
    for task, workers in zip(tasks[1:], (0, 4), strict=True):
        train(task, replace(worker.NOISY, workers=workers), device="cpu")
        assert torch.equal(weights_of(task.final_model()), weights_of(tasks[0].final_model()))
    other = worker.Noisy()
    train(other, replace(worker.NOISY, seed=1), device="cpu")
    assert not torch.equal(weights_of(other.final_model()), weights_of(tasks[0].final_model()))


def test_mixed_precision_keeps_float32_weights(worker: ModuleType) -> None:
    task = worker.Noisy()
    result = train(task, replace(worker.NOISY, precision="bfloat16"), device="cpu")
    other = worker.Noisy()
    expected = train(other, worker.NOISY, device="cpu")
    assert {value.dtype for value in task.model.parameters()} == {torch.float32}
    assert result.best == pytest.approx(expected.best, rel=0.1)  # bfloat16 has 8 bits
    assert result.best != expected.best


@pytest.mark.parametrize(("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_autocast_applies_to_other_networks(worker: ModuleType, precision: Any, expected: torch.dtype) -> None:
    seen = set()

    class Taught(worker.Noisy):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            with self.autocast():
                seen.add(self.average.module(batch[0]).dtype)
            return dict(super().loss(model, batch, step))

    train(Taught(), replace(worker.NOISY, precision=precision), device="cpu")
    assert seen == {expected}


def test_hooks_receive_device_and_step(worker: ModuleType) -> None:
    calls: list[Any] = []

    class Listening(worker.Rows):  # type: ignore[misc, name-defined]
        def prepare(self, device: torch.device) -> None:
            calls.append(device)

        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            calls.append(step)
            assert model.training  # also after validation
            return {"loss": F.mse_loss(model(batch[0]), batch[1])}

        def after_step(self, step: int) -> None:
            calls.append(f"after {step}")

    train(Listening(batch=12), replace(SGD, accumulate=2), device="cpu")
    assert calls == [torch.device("cpu"), 0, 0, "after 1", 1, 1, "after 2"]
