from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from entourage.training import Losses, Task
from entourage.training.pace import steps_within


class _Line(Task[int, torch.Tensor]):
    """A line through points; counts what is asked of it."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)
        self.loaded: list[int] = []
        self.validated = 0

    def plan(self, epoch: int) -> Sequence[int]:
        return range(4)

    def load(self, item: int, rng: np.random.Generator) -> torch.Tensor:
        self.loaded.append(item)
        return torch.from_numpy(rng.normal(size=(8, 1)).astype(np.float32))

    def loss(self, model: nn.Module, batch: torch.Tensor, step: int) -> Losses:
        return {"loss": (model(batch) - batch).square().mean()}

    def validate(self, model: nn.Module) -> dict[str, float]:
        assert not model.training
        self.validated += 1
        return {}


def test_steps_are_tried_once_and_the_folder_remembers(tmp_path: Path) -> None:
    task = _Line()
    before = task.model.weight.detach().clone()
    steps = steps_within(task, range(9), tmp_path, 10.0, "cpu", epoch=10)
    assert task.loaded == list(range(9))
    assert task.validated == 1
    assert torch.equal(task.model.weight, before)  # a trial learns nothing
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert plan["steps"] == steps == max(2, int(600 / plan["seconds a step"]))
    again = _Line()
    assert steps_within(again, range(9), tmp_path, 100.0, "cpu", epoch=10) == steps
    assert again.loaded == []


def test_no_time_is_no_time(tmp_path: Path) -> None:
    assert steps_within(_Line(), range(3), None, 1e-9, "cpu", epoch=1) == 2
    with pytest.raises(ValueError, match="minutes is 0"):
        steps_within(_Line(), range(3), None, 0, "cpu", epoch=1)


class _Clock:
    """Time that passes only where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("entourage.training.pace.time", self)

    def perf_counter(self) -> float:
        return self.now


class _Slow(_Line):
    """Takes so many seconds for its first step and for the others, and for a validation."""

    def __init__(self, clock: _Clock, first: float, others: float, validation: float = 0.0) -> None:
        super().__init__()
        self.clock, self.first, self.others, self.validation = clock, first, others, validation

    def load(self, item: int, rng: np.random.Generator) -> torch.Tensor:
        self.clock.now += self.others if self.loaded else self.first
        return super().load(item, rng)

    def validate(self, model: nn.Module) -> dict[str, float]:
        self.clock.now += self.validation
        return super().validate(model)


@pytest.mark.parametrize(
    ("first", "others", "made"),
    [
        (1.0, 0.01, 48),  # fast enough for the whole trial
        (1.0, 0.5, 11),  # 6 seconds of a minute: it ends with the step that reaches them
        (30.0, 20.0, 2),  # one that is counted after the first, whatever it takes
    ],
)
def test_a_trial_ends_after_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, first: float, others: float, made: int
) -> None:
    task = _Slow(_Clock(monkeypatch), first, others, validation=5.0)
    steps = steps_within(task, range(48), None, 1.0, "cpu", epoch=100)
    assert task.loaded == list(range(made))
    assert steps == int(60 / (others + 0.05))  # the first step, which loads and chooses, tells nothing
