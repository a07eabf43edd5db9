"""Where a run stands, and how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from entourage.training.options import TrainingOptions


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        epochs: epochs completed.
        steps: updates made.
        metrics: of the last validation.
        best: the best value of the monitored metric, None where none is monitored.
        best_step: updates made when it was measured.
        stopped: "done" after all epochs or steps, "early" when patience ended before.
        seconds: time taken, over all sittings.
    """

    epochs: int
    steps: int
    metrics: dict[str, float]
    best: float | None
    best_step: int | None
    stopped: Literal["done", "early"]
    seconds: float


@dataclass(frozen=True)
class RunState:
    """Where a run stands, as a checkpoint keeps it.

    Attributes:
        step: updates made.
        epoch: epochs completed.
        position: updates made in the epoch begun.
        metrics, best, best_step, seconds: see `TrainingResult`.
        stale: validations since the best was first reached.
        finished: whether nothing is left to do.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    seconds: float = 0.0
    finished: bool = False

    def validated(self, metrics: dict[str, float], options: TrainingOptions) -> RunState:
        """The state after a validation.

        Raises:
            ValueError: the monitored metric is not among the metrics.
        """
        state = replace(self, metrics=metrics)
        if options.monitor is None:
            return state
        if options.monitor not in metrics:
            found = ", ".join(metrics) or "no metrics"
            raise ValueError(f"monitor is {options.monitor!r}, but the task's validation returns {found}")
        value, sign = metrics[options.monitor], 1 if options.mode == "max" else -1
        if not math.isnan(value) and (self.best is None or sign * value > sign * self.best):
            return replace(state, best=value, best_step=self.step, stale=0)
        as_good = options.ties == "last" and value == self.best
        return replace(state, best_step=self.step if as_good else self.best_step, stale=self.stale + 1)

    def out_of_patience(self, options: TrainingOptions) -> bool:
        """Whether the best lies too far back."""
        return options.patience is not None and self.stale >= options.patience

    def result(self, options: TrainingOptions) -> TrainingResult:
        """What the caller of a run that has ended here gets to see."""
        complete = self.epoch == options.epochs or self.step == options.max_steps
        early = self.out_of_patience(options) and not complete
        return TrainingResult(
            self.epoch,
            self.step,
            self.metrics,
            self.best,
            self.best_step,
            "early" if early else "done",
            self.seconds,
        )
