"""Options of a training run: how long, how fast, how exact, and what is kept.

What every recipe says that counts in steps: how many, how fast, and how often to look at what was learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from entourage.validation import check_choice, is_integer, is_number, validate_counts

OptimizerName = Literal["adamw", "adam", "radam", "sgd"]
Schedule = Literal["constant", "cosine", "linear", "step"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]
Mode = Literal["max", "min"]
Ties = Literal["first", "last"]


@dataclass(frozen=True)
class TrainingOptions:
    """How `train` trains; what it trains is the task's business.

    A step is one update of the weights, made from `accumulate` batches in each process.
    """

    epochs: int = 10
    max_steps: int | None = None  # ends the run earlier, wherever in an epoch
    accumulate: int = 1  # batches whose gradients are averaged into one step
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9  # of "sgd" only
    schedule: Schedule = "constant"
    warmup_steps: int = 0  # a linear rise before any schedule
    milestones: tuple[int, ...] = ()  # epochs before which "step" multiplies the learning rate with gamma
    gamma: float = 0.1
    clip_norm: float | None = None  # longest gradient, over all weights together
    precision: Precision = "auto"  # bfloat16 on a GPU that has it, float16 on an older one, float32 elsewhere
    seed: int = 0
    validate_every: int = 1  # epochs; the end of the run is validated in any case
    monitor: str | None = None  # the metric that says which weights are best
    mode: Mode = "max"  # whether more of it is better, or less
    ties: Ties = "first"  # which of equally good weights are best; patience goes on in any case
    patience: int | None = None  # validations without a new best after which the run stops
    restore_best: bool = False  # whether the run ends with the best weights rather than with the last
    checkpoint_every: int | None = None  # steps; the end of an epoch is kept in any case
    log_every: int = 20  # steps; on a GPU each line waits for the steps before it
    tensorboard: bool = False
    workers: int = 2  # threads that load batches ahead; 0 loads each when it is needed

    def __post_init__(self) -> None:
        for name, choices in (
            ("optimizer", OptimizerName),
            ("schedule", Schedule),
            ("precision", Precision),
            ("mode", Mode),
            ("ties", Ties),
        ):
            check_choice(name, getattr(self, name), choices)
        self._check_counts()
        self._check_numbers()
        self._check_milestones()
        for name, is_set in (("patience", self.patience is not None), ("restore_best", self.restore_best)):
            if is_set and self.monitor is None:
                raise ValueError(f"{name} needs a metric to go by; set monitor")

    def _check_milestones(self) -> None:
        milestones: object = self.milestones
        if not isinstance(milestones, tuple | list) or not all(map(is_integer, milestones)):
            raise ValueError(f"milestones is {milestones!r}; expected rising epochs from 1")
        object.__setattr__(self, "milestones", tuple(map(int, milestones)))
        if self.milestones and self.schedule != "step":
            raise ValueError(f"milestones are for the schedule 'step'; the schedule is {self.schedule!r}")
        if sorted(set(self.milestones)) != list(self.milestones) or any(epoch < 1 for epoch in self.milestones):
            raise ValueError(f"milestones is {self.milestones}; expected rising epochs from 1")

    def _check_counts(self) -> None:
        validate_counts(self, 1, "epochs", "accumulate", "validate_every", "log_every")
        validate_counts(self, 0, "workers", "warmup_steps", "seed")
        optional = [name for name in ("max_steps", "patience", "checkpoint_every") if getattr(self, name) is not None]
        validate_counts(self, 1, *optional)

    def _check_numbers(self) -> None:
        for name in ("learning_rate", "gamma", "clip_norm"):
            value = getattr(self, name)
            if name == "clip_norm" and value is None:
                continue
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; expected a number above 0")
        for name, bound in (("weight_decay", math.inf), ("momentum", 1.0)):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < bound:
                raise ValueError(f"{name} is {value!r}; expected a number in [0, {bound:g})")


@dataclass(frozen=True, kw_only=True)
class StepRecipe:
    """How long and how fast a network is trained that draws a new batch at every step.

    A recipe of a verb adds what is drawn. All of its fields tell one run from another, so that a field with another
    name, or one more, ends the runs in progress.

    Attributes:
        steps: updates of the weights.
        optimizer: of the training loop.
        learning_rate: the highest; it rises over `warmup` steps and then follows the schedule.
        schedule: "cosine", "constant" or "linear".
        warmup: steps, a quarter of all at most.
        weight_decay: of all weights.
        average: decay of the moving average of the weights, which is what is kept; 0 keeps the last weights.
        validation: how much to validate with, after every epoch.
        epoch: steps of an epoch.
        seed: of everything.
    """

    steps: int = 20_000
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    warmup: int
    weight_decay: float
    average: float = 0.999
    validation: int
    epoch: int
    seed: int = 0

    def __post_init__(self) -> None:
        validate_counts(self, 1, "steps", "epoch")
        validate_counts(self, 0, "warmup", "validation", "seed")

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        return TrainingOptions(
            epochs=-(-self.steps // self.epoch),
            max_steps=self.steps,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            warmup_steps=min(self.warmup, self.steps // 4),
            seed=self.seed,
            log_every=50,
        )
