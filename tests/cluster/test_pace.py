from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from entourage.cluster.curriculum import Curriculum
from entourage.cluster.learn import learn
from entourage.cluster.model import ClusterNetwork
from entourage.cluster.options import LossOptions, ModelOptions
from entourage.cluster.points import PointSampler
from entourage.cluster.task import ClusterTask, Recipe

SMALL = ModelOptions(k_max=3, width=16, depth=2, heads=2, code=8, frequencies=8)
SIZES = Curriculum(home=24, home_k=3, home_share=0.5, least=12, most=30, sets=8, crowd=4)
RECIPE = Recipe(steps=6, curriculum=SIZES, warmup=2, validation=4, epoch=3, average=0.9, learning_rate=3e-3)
GAUSSIANS = PointSampler(3, kinds=(4, 5))


def make(recipe: Recipe = RECIPE, options: ModelOptions = SMALL, loss: LossOptions | None = None) -> ClusterTask:
    torch.manual_seed(0)
    return ClusterTask(ClusterNetwork((2,), options), GAUSSIANS, GAUSSIANS, loss or LossOptions(), recipe)


def test_a_time_limit_sets_the_number_of_steps_once(tmp_path: Path) -> None:
    task = make(replace(RECIPE, steps=10**6))
    _, result = learn(task, tmp_path, minutes=0.003, device="cpu", progress=False)
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert result.steps == plan["steps"] == task.recipe.steps < 1000
    again = make(replace(RECIPE, steps=10**6))
    assert learn(again, tmp_path, minutes=5, device="cpu", progress=False)[1].steps == plan["steps"]
    with pytest.raises(ValueError, match="minutes is 0"):
        learn(make(), minutes=0, device="cpu")
