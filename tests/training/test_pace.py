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
    steps = steps_within(task, range(9), tmp_path, 0.01, "cpu", epoch=10)
    assert task.loaded == list(range(9))
    assert task.validated == 1
    assert torch.equal(task.model.weight, before)  # a trial learns nothing
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert plan["steps"] == steps == max(2, int(0.6 / plan["seconds a step"]))
    again = _Line()
    assert steps_within(again, range(9), tmp_path, 100.0, "cpu", epoch=10) == steps
    assert again.loaded == []


def test_no_time_is_no_time(tmp_path: Path) -> None:
    assert steps_within(_Line(), range(3), None, 1e-9, "cpu", epoch=1) == 2
    with pytest.raises(ValueError, match="minutes is 0"):
        steps_within(_Line(), range(3), None, 0, "cpu", epoch=1)
