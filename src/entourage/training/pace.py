"""How many steps of training fit into a time: measured on the first few, and remembered."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from entourage.data import resolve_device, write_json
from entourage.training.batch import to_device
from entourage.training.task import Batch, Item, Task

TRIAL_STEPS = 48  # steps by which a run with a time limit learns how fast it is
PLAN = "steps.json"


def steps_within(
    trial: Task[Item, Batch],
    items: Sequence[Item],
    run: Path | None,
    minutes: float,
    device: str | torch.device = "auto",
    *,
    epoch: int,
    seed: int = 0,
) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder.

    Args:
        trial: a task like the one to be trained, with a network of its own, which is of no use afterwards.
        items: what to try it with, such as a plan gives.
        run: the folder of the run; None remembers nothing.
        minutes: for everything, validation included.
        device: where.
        epoch: steps between validations.
        seed: of what is loaded.

    Raises:
        ValueError: the time is not above 0.
    """
    plan = None if run is None else run / PLAN
    if plan is not None and plan.is_file():
        return int(json.loads(plan.read_text(encoding="utf-8"))["steps"])
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a time above 0")
    seconds = _seconds_a_step(trial, items, resolve_device(device), epoch, seed)
    steps = max(2, int(60 * minutes / seconds))
    if plan is not None:
        write_json(plan, {"steps": steps, "seconds a step": seconds}, indent=None)
    return steps


def _seconds_a_step(
    trial: Task[Item, Batch], items: Sequence[Item], place: torch.device, epoch: int, seed: int
) -> float:
    """Times steps, the loading and a share of the validation included."""
    trial.model.to(place).train()
    trial.prepare(place)
    optimizer = torch.optim.AdamW(trial.model.parameters(), lr=0.0, weight_decay=0.0)
    rng = np.random.default_rng(seed)
    warm = len(items) // 3  # the first steps load kernels and choose algorithms
    began = 0.0
    for step, item in enumerate(items):
        if step == warm:
            _wait(place)
            began = time.perf_counter()
        batch = to_device(trial.load(item, rng), place)
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = trial.loss(trial.model, batch, step)["loss"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    _wait(place)
    each = (time.perf_counter() - began) / (len(items) - warm)
    trial.model.eval()
    began = time.perf_counter()
    with torch.no_grad():
        trial.validate(trial.model)
    return each + (time.perf_counter() - began) / epoch


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
