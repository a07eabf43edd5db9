"""How many steps of training fit into a time: measured on the first few, and remembered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from entourage.compute import resolve_device
from entourage.io.files import write_json
from entourage.io.progress import process_count, progress_bar
from entourage.runs.directory import try_lock
from entourage.training.loop import train
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import Batch, Item, Losses, Task

TRIAL_STEPS = 48  # steps by which a run with a time limit learns how fast it is
TRIAL_FRACTION = 0.1  # of the time, after which a trial ends that has not made all of them
WARMUP_FRACTION = 1 / 3  # of a trial, at its beginning, that is not counted: it loads kernels and chooses algorithms
_PLAN = "steps.json"


def steps_in_budget(
    trial: Task[Item, Batch],
    items: Sequence[Item],
    run_dir: Path | None,
    minutes: float,
    device: str | torch.device = "auto",
    *,
    steps_per_epoch: int,
    seed: int = 0,
    progress: bool | None = None,
    options: TrainingOptions | None = None,
) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder.

    A trial tells. It comes on top of the time, and ends after a tenth of it or after two steps, whichever is longer.

    Args:
        trial: a task like the one to be trained, with a network of its own, which is of no use afterwards.
        items: what to try it with, such as a plan gives; two or more.
        run_dir: the folder of the run; None remembers nothing.
        minutes: for all steps, validation included; there will be two steps at least.
        device: where.
        steps_per_epoch: steps between validations.
        seed: of what is loaded.
        progress: show a bar during the trial; None: only on a terminal.
        options: how it will be trained; None: as the trial's `recipe` says, where that counts in steps.

    Raises:
        ValueError: the time is not above 0, the run in the folder was begun for another time, there are too few items,
            or there are several processes, of which each would come to a number of its own.
    """
    _check_one_process()
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a time above 0")
    if run_dir is not None and (run_dir / _PLAN).is_file():
        return _planned_steps(run_dir, minutes)
    max_seconds = 60 * minutes * TRIAL_FRACTION
    with progress_bar("Measuring the pace", len(items), progress) as advance:
        seconds = seconds_per_step(
            trial,
            items,
            resolve_device(device),
            max_seconds,
            steps_per_epoch=steps_per_epoch,
            seed=seed,
            advance=advance,
            options=options,
        )
    steps = max(2, int(60 * minutes / seconds))
    if run_dir is None:
        return steps
    _write_plan(run_dir / _PLAN, {"steps": steps, "seconds a step": seconds, "minutes": minutes})
    return _planned_steps(run_dir, minutes)


def seconds_per_step(
    trial: Task[Item, Batch],
    items: Sequence[Item],
    device: torch.device,
    max_seconds: float,
    *,
    steps_per_epoch: int,
    seed: int = 0,
    advance: Callable[[int], None] = lambda count: None,
    options: TrainingOptions | None = None,
) -> float:
    """Times steps of the training loop and a share of the validation; the first steps never count.

    Args:
        trial: a task whose network is of no use afterwards.
        items: what to try it with, such as a plan gives; two or more, one for every step.
        device: where.
        max_seconds: seconds after which it ends, if not after as many steps as there are items; two are made at least.
        steps_per_epoch: steps between validations.
        seed: of what is loaded.
        advance: is told of every step.
        options: how it will be trained; None: as the trial's `recipe` says, where that counts in steps.

    Raises:
        ValueError: there are fewer than two items, or several processes.
    """
    _check_one_process()
    if len(items) < 2:
        raise ValueError(f"a trial has {len(items)} items; expected two or more, of which the first only warms up")
    options = _default_options(trial) if options is None else options
    timed = _TimedTask(trial, list(items) * options.accumulate, len(items), max_seconds, advance)
    unlimited = replace(
        options,
        epochs=options.workers + 2,  # batches are loaded ahead until the trial ends
        max_steps=None,
        seed=seed,
        monitor=None,
        patience=None,
        restore_best=False,
        tensorboard=False,
    )
    try:
        train(timed, unlimited, device=device, progress=False)
    except _TrialFinishedError:
        return timed.seconds_per_step + timed.validation_seconds / steps_per_epoch
    raise AssertionError("a trial ends by itself before its epochs do")


class _TrialFinishedError(Exception):
    """A trial has seen all it wants to see."""


class _TimedTask(Task[Item, Batch]):
    """A task that is trained as another one is, with an eye on the clock, until enough is known.

    Args:
        trial: does all the work.
        items: of an epoch.
        steps: after which it ends.
        max_seconds: seconds after which it ends earlier.
        advance: is told of every step.

    Attributes:
        seconds_per_step: seconds a step, once it has ended.
        validation_seconds: seconds of a validation.
    """

    def __init__(
        self,
        trial: Task[Item, Batch],
        items: Sequence[Item],
        steps: int,
        max_seconds: float,
        advance: Callable[[int], None],
    ) -> None:
        self.model = trial.model
        self.skips_parameters = trial.skips_parameters
        self.trial = trial
        self.items = items
        self.steps = steps
        self.max_seconds = max_seconds
        self.advance = advance
        self.seconds_per_step = self.validation_seconds = 0.0
        self.device, self.started = torch.device("cpu"), 0.0
        self.warmed_up: tuple[int, float] | None = None  # steps and time after which it counts

    def prepare(self, device: torch.device) -> None:
        """The clock begins when everything is in its place."""
        self.trial.autocast = self.autocast
        self.trial.prepare(device)
        self.device, self.started = device, time.perf_counter()

    def plan(self, epoch: int) -> Sequence[Item]:
        """The same in all epochs."""
        return self.items

    def load(self, item: Item, rng: np.random.Generator) -> Batch:
        """As the trial does."""
        return self.trial.load(item, rng)

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """As the trial does."""
        return self.trial.loss(model, batch, step)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Those of the trial."""
        return self.trial.parameter_groups()

    def final_model(self) -> nn.Module:
        """That of the trial."""
        return self.trial.final_model()

    def after_step(self, step: int) -> None:
        """All that the trial does after a step belongs to it; then a look at the clock."""
        self.trial.after_step(step)
        self.advance(1)
        # A GPU does later what it is told, but holds only so much of it: the clock is right on the whole.
        spent = time.perf_counter() - self.started
        if self.warmed_up is None:
            if step >= WARMUP_FRACTION * self.steps or spent >= WARMUP_FRACTION * self.max_seconds:
                self.warmed_up = step, self._now()
        elif step == self.steps or spent >= self.max_seconds:
            before, since = self.warmed_up
            self.seconds_per_step = (self._now() - since) / (step - before)
            self._time_validation()
            raise _TrialFinishedError

    def _time_validation(self) -> None:
        model = self.trial.final_model()
        self.trial.model.eval()
        model.eval()
        since = self._now()
        with torch.no_grad():
            self.trial.validate(model)
        self.validation_seconds = self._now() - since

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _default_options(trial: Task[Any, Any]) -> TrainingOptions:
    recipe = getattr(trial, "recipe", None)
    return recipe.training_options() if isinstance(recipe, StepRecipe) else TrainingOptions()


def _check_one_process() -> None:
    processes = process_count()
    if processes > 1:
        raise ValueError(f"minutes are for one process, and there are {processes}; expected steps in their place")


def _write_plan(plan: Path, values: dict[str, Any]) -> None:
    """Writes a plan unless there is one by now: who wrote that may be training by it."""
    while not plan.is_file():
        with try_lock(plan) as locked:  # others wait for as long as it takes to write a line
            if locked and not plan.is_file():
                write_json(plan, values, indent=None)


def _planned_steps(run_dir: Path, minutes: float) -> int:
    """The steps of the plan in a folder, which shape the schedule of the learning rate: a run keeps to them."""
    plan = json.loads((run_dir / _PLAN).read_text(encoding="utf-8"))
    steps, seconds = int(plan["steps"]), float(plan["seconds a step"])
    planned = float(plan.get("minutes", steps * seconds / 60))  # plans of earlier versions do not tell
    if abs(minutes - planned) > seconds / 60:  # they cut theirs to whole steps
        difference = f"{planned:g} minutes ({steps} steps), now {minutes:g}"
        raise ValueError(
            f"{run_dir} holds a run for {difference}; continue it as it was started, or choose another folder"
        )
    return steps
