"""How many steps of training fit into a time: measured on the first few, and remembered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from entourage.data import progress_bar, resolve_device, write_json
from entourage.training.batch import to_device
from entourage.training.task import Batch, Item, Task

TRIAL_STEPS = 48  # steps by which a run with a time limit learns how fast it is
TRIAL_SHARE = 0.1  # of the time, after which a trial ends that has not made all of them
WARM_SHARE = 1 / 3  # of a trial, at its beginning, that is not counted: it loads kernels and chooses algorithms
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
    progress: bool | None = None,
) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder.

    A trial tells. It comes on top of the time, and ends after a tenth of it or after two steps, whichever is longer.

    Args:
        trial: a task like the one to be trained, with a network of its own, which is of no use afterwards.
        items: what to try it with, such as a plan gives; two or more.
        run: the folder of the run; None remembers nothing.
        minutes: for all steps, validation included; there will be two steps at least.
        device: where.
        epoch: steps between validations.
        seed: of what is loaded.
        progress: show a bar during the trial; None: only on a terminal.

    Raises:
        ValueError: the time is not above 0.
    """
    plan = None if run is None else run / PLAN
    if plan is not None and plan.is_file():
        return int(json.loads(plan.read_text(encoding="utf-8"))["steps"])
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a time above 0")
    most = 60 * minutes * TRIAL_SHARE
    with progress_bar("Measuring the pace", len(items), progress) as advance:
        seconds = seconds_a_step(trial, items, resolve_device(device), most, epoch=epoch, seed=seed, advance=advance)
    steps = max(2, int(60 * minutes / seconds))
    if plan is not None:
        write_json(plan, {"steps": steps, "seconds a step": seconds}, indent=None)
    return steps


def seconds_a_step(
    trial: Task[Item, Batch],
    items: Sequence[Item],
    place: torch.device,
    most: float,
    *,
    epoch: int,
    seed: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> float:
    """Times steps of a trial, their loading and a share of the validation included; the first never count.

    Args:
        trial: a task whose network is of no use afterwards, though its weights stay.
        items: what to try it with, such as a plan gives; two or more.
        place: where.
        most: seconds after which it ends, if not after all items; two steps are made at least.
        epoch: steps between validations.
        seed: of what is loaded.
        advance: is told of every step.
    """
    trial.model.to(place).train()
    trial.prepare(place)
    optimizer = torch.optim.AdamW(trial.model.parameters(), lr=0.0, weight_decay=0.0)
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    since, counted = began, 0
    for made, item in enumerate(items):
        # A GPU does later what it is told, but holds only so much of it: the clock is right on the whole.
        spent = time.perf_counter() - began
        if counted and spent >= most:
            break
        if made and not counted and (made >= WARM_SHARE * len(items) or spent >= WARM_SHARE * most):
            _wait(place)
            since, counted = time.perf_counter(), 1
        elif counted:
            counted += 1
        batch = to_device(trial.load(item, rng), place)
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = trial.loss(trial.model, batch, made)["loss"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        advance(1)
    _wait(place)
    each = (time.perf_counter() - since) / counted
    trial.model.eval()
    since = time.perf_counter()
    with torch.no_grad():
        trial.validate(trial.model)
    return each + (time.perf_counter() - since) / epoch


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
