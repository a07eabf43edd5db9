from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.detect.small import small_data
from torch import nn

from entourage.detect.training.task import PageTask, Recipe
from entourage.training.task import Losses


class IdentityTask(PageTask[int]):
    def load(self, item: int, rng: np.random.Generator) -> int:
        return item

    def loss(self, model: nn.Module, batch: int, step: int) -> Losses:
        return {"loss": model(torch.ones(1)).sum()}


def test_epochs_are_consecutive_step_numbers_and_pages_move_to_the_device(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path)
    task = IdentityTask(nn.Linear(1, 1), pack, Recipe(epoch=7), 0.9)
    assert [*task.plan(0), *task.plan(1)] == list(range(14))
    task.prepare(torch.device("cpu"))
    assert task.pack.pixels.device == task.device == torch.device("cpu")
    assert task.average is not None
    assert IdentityTask(nn.Linear(1, 1), pack, Recipe()).average is None
