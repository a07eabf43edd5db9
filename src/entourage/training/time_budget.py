"""Number of training steps that fit into a time budget, measured in a trial and stored in the run directory."""

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
from entourage.runs.directory import check_config, try_lock
from entourage.training.loop import train
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import Batch, Item, Losses, Task

TRIAL_STEPS = 48  # steps of a trial
TRIAL_FRACTION = 0.1  # fraction of the time budget after which a trial ends early
WARMUP_FRACTION = 1 / 3  # fraction of a trial that is not timed: it loads kernels and selects algorithms
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
    """Return the number of steps that fit into a time budget, at least 2.

    A trial measures the time of a step. It is not part of the budget, and ends after a tenth of the budget or after two
    steps, whichever is later. The number is stored in the run directory, and a resumed run uses the stored number,
    which determines the schedule of its learning rate.

    Args:
        trial: a task like the one to be trained, with a separate network, because the trial changes its weights.
        items: items of a plan to train on, at least two.
        run_dir: the run directory; None stores nothing.
        minutes: time budget for all steps and validations.
        device: the device to train on.
        steps_per_epoch: steps between validations.
        seed: seed of the batches.
        progress: whether to show a progress bar; None: only on a terminal.
        options: options of the training; None: those of the trial's `recipe`, if that is a `StepRecipe`.

    Returns:
        The number of steps.

    Raises:
        ValueError: the budget is not above 0 or differs from the one in the run directory, there are too few items, or
            there are several processes, which would measure different numbers.
    """
    _check_one_process()
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a number above 0")
    if run_dir is not None and (run_dir / _PLAN).is_file():
        return _planned_steps(run_dir, minutes)
    max_seconds = 60 * minutes * TRIAL_FRACTION
    with progress_bar("Measuring the speed", len(items), progress) as advance:
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
    """Measure the time of a training step, including its share of the validation; the first steps are not timed.

    Args:
        trial, device, steps_per_epoch, seed, options: see `steps_in_budget`.
        items: items of a plan, at least two, one per step.
        max_seconds: time after which the trial ends early, but not before two steps.
        advance: called with 1 after every step.

    Returns:
        Seconds per step.

    Raises:
        ValueError: there are fewer than two items, or several processes.
    """
    _check_one_process()
    if len(items) < 2:
        raise ValueError(f"items: {len(items)} items; expected two or more, as the first step is not timed")
    options = _default_options(trial) if options is None else options
    timed = _TimedTask(trial, list(items) * options.accumulate, len(items), max_seconds, advance)
    unlimited = replace(
        options,
        epochs=options.workers + 2,  # more than needed, as batches are loaded ahead until the trial ends
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
    raise AssertionError("the trial did not end before its last epoch")


class _TrialFinishedError(Exception):
    """Raised within a trial to end its training after enough steps."""


class _TimedTask(Task[Item, Batch]):
    """Wrapper of a task that times its steps and ends the training with a `_TrialFinishedError`.

    Attributes:
        seconds_per_step: mean time of the timed steps.
        validation_seconds: time of a validation.
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
        self.warmed_up: tuple[int, float] | None = None  # number of steps and time at the end of the warm-up

    def prepare(self, device: torch.device) -> None:
        """Prepare the trial task, and start the clock."""
        self.trial.autocast = self.autocast
        self.trial.prepare(device)
        self.device, self.started = device, time.perf_counter()

    def plan(self, epoch: int) -> Sequence[Item]:
        """Return the items of the trial, which are the same in all epochs."""
        return self.items

    def load(self, item: Item, rng: np.random.Generator) -> Batch:
        """Load a batch of the trial task."""
        return self.trial.load(item, rng)

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Compute the losses of the trial task."""
        return self.trial.loss(model, batch, step)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of the trial task."""
        return self.trial.parameter_groups()

    def final_model(self) -> nn.Module:
        """Return the final model of the trial task."""
        return self.trial.final_model()

    def after_step(self, step: int) -> None:
        """Call the trial's hook, then measure the time; end the trial after enough steps."""
        self.trial.after_step(step)
        self.advance(1)
        # Kernels run asynchronously on a GPU, but its queue is short: without synchronisation this is nearly exact.
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
    if (processes := process_count()) > 1:
        raise ValueError(f"minutes is set for {processes} processes; expected one process, or steps instead")


def _write_plan(plan: Path, values: dict[str, Any]) -> None:
    """Write the plan unless another process, which may already be training, has written one."""
    while not plan.is_file():
        with try_lock(plan) as locked:  # held only while the file is written
            if locked and not plan.is_file():
                write_json(plan, values, indent=None)


def _planned_steps(run_dir: Path, minutes: float) -> int:
    """Return the number of steps stored in a run directory, and check that its time budget is `minutes`."""
    plan = json.loads((run_dir / _PLAN).read_text(encoding="utf-8"))
    steps, seconds = int(plan["steps"]), float(plan["seconds a step"])
    planned = float(plan.get("minutes", steps * seconds / 60))  # earlier versions stored no minutes
    if abs(minutes - planned) > seconds / 60:  # without stored minutes, `planned` is rounded to steps
        message = f"minutes {planned:g} ({steps} steps), now {minutes:g}"
        check_config(run_dir, {"minutes": planned}, {"minutes": minutes}, {"minutes": message})
    return steps
