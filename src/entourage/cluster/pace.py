"""How many steps of training fit into a time: measured on the first few, and remembered."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from entourage.cluster.task import ClusterTask
from entourage.data import atomic_path, resolve_device

TRIAL_STEPS = 48  # steps by which a run with a time limit learns how fast it is
PLAN = "steps.json"


def steps_within(task: ClusterTask, run: Path | None, minutes: float, device: str) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder."""
    plan = None if run is None else run / PLAN
    if plan is not None and plan.is_file():
        return int(json.loads(plan.read_text(encoding="utf-8"))["steps"])
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a time above 0")
    seconds = _seconds_a_step(task, device)
    steps = max(2, int(60 * minutes / seconds))
    if plan is not None:
        with atomic_path(plan) as temporary:
            temporary.write_text(json.dumps({"steps": steps, "seconds a step": seconds}) + "\n", encoding="utf-8")
    return steps


def _seconds_a_step(task: ClusterTask, device: str) -> float:
    """Times steps of a copy of the network, the draws and a share of the validation included."""
    trial = ClusterTask(
        copy.deepcopy(task.network), task.sampler, task.validation, task.loss_options, replace(task.recipe, average=0.0)
    )
    place = resolve_device(device)
    trial.model.to(place).train()
    trial.prepare(place)
    optimizer = torch.optim.AdamW(trial.model.parameters(), lr=0.0, weight_decay=0.0)
    rng = np.random.default_rng(task.recipe.seed)
    draws = [task.recipe.curriculum.draw(0.5, task.sampler.k_max, rng) for _ in range(TRIAL_STEPS)]
    began = 0.0
    for step, draw in enumerate(draws):
        if step == TRIAL_STEPS // 3:  # the first steps load kernels and choose algorithms
            _wait(place)
            began = time.perf_counter()
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = trial.loss(trial.model, draw, step)["loss"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    _wait(place)
    each = (time.perf_counter() - began) / (TRIAL_STEPS - TRIAL_STEPS // 3)
    trial.model.eval()
    began = time.perf_counter()
    trial.validate(trial.model)
    return each + (time.perf_counter() - began) / task.recipe.epoch


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
