"""How many steps of learning to cluster fit into a time."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np

from entourage.cluster.task import ClusterTask
from entourage.training import time_budget as pace


def steps_within(
    task: ClusterTask, run: Path | None, minutes: float, device: str, *, progress: bool | None = None
) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder."""
    recipe = task.recipe
    trial = ClusterTask(copy.deepcopy(task.network), task.sampler, task.validation, task.loss_options, recipe)
    rng = np.random.default_rng(recipe.seed)
    draws = [task.draw(0.5, rng) for _ in range(pace.TRIAL_STEPS)]
    return pace.steps_within(
        trial, draws, run, minutes, device, epoch=recipe.epoch, seed=recipe.seed, progress=progress
    )
