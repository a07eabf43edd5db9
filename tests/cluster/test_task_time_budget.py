from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.small import RECIPE, make

from entourage.cluster.task import steps_in_budget, train_network
from entourage.training import time_budget


@pytest.mark.extra("train")
def test_a_time_budget_sets_the_number_of_steps_once(tmp_path: Path) -> None:
    task = make(replace(RECIPE, steps=10**6))
    _, result = train_network(task, tmp_path, minutes=0.003, device="cpu", progress=False)
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert result.steps == plan["steps"] == task.recipe.steps < 1000
    again = make(replace(RECIPE, steps=10**6))
    assert train_network(again, tmp_path, minutes=0.003, device="cpu", progress=False)[1].steps == plan["steps"]
    with pytest.raises(ValueError, match=r"holds a run with minutes 0.003 \(\d+ steps\), now 5; "):
        train_network(make(replace(RECIPE, steps=10**6)), tmp_path, minutes=5, device="cpu", progress=False)
    with pytest.raises(ValueError, match="minutes is 0; expected a number above 0"):
        train_network(make(), minutes=0, device="cpu")


def test_the_trial_uses_the_recipe_and_a_copy_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    task, trials = make(), []

    def seconds_per_step(trial: Any, *args: Any, **kwargs: Any) -> float:
        trials.append(trial)
        return 6.0

    monkeypatch.setattr(time_budget, "seconds_per_step", seconds_per_step)
    assert steps_in_budget(task, None, 1.0, "cpu", progress=False) == 10
    (trial,) = trials
    assert trial.recipe == task.recipe  # including gradient clipping and weight averaging
    assert trial.average is not None
    assert trial.network is not task.network
