"""Options of the training loop, and the base class of recipes that are measured in steps."""

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
    """Options of the training loop `train`.

    A step is one update of the weights, computed from `accumulate` batches in each process.

    Attributes:
        epochs: number of epochs.
        max_steps: number of updates after which the run ends, even within an epoch.
        accumulate: batches whose gradients are averaged in one step.
        optimizer: "adamw", "adam", "radam" or "sgd".
        learning_rate: largest learning rate.
        weight_decay: weight decay of all weights.
        momentum: momentum of "sgd"; other optimisers ignore it.
        nesterov: whether the momentum of "sgd" is Nesterov's.
        schedule: schedule of the learning rate: "constant", "cosine", "linear" or "step"; see `learning_rate_factor`.
        warmup_steps: steps of a linear rise of the learning rate before the schedule.
        milestones: epochs at whose start "step" multiplies the learning rate by gamma.
        gamma: factor of the schedule "step".
        final_factor: learning rate at the end of "cosine" and "linear", relative to the largest.
        clip_norm: largest norm of the gradient of all weights.
        precision: "bfloat16", "float16", "float32", or "auto": bfloat16 on GPUs that support it, float16 on older ones,
            float32 elsewhere.
        seed: random seed.
        validate_every: epochs between validations; the end of the run is always validated.
        monitor: the metric that selects the best weights.
        mode: "max" or "min": whether larger or smaller values are better.
        ties: "first" or "last": which of equally good weights are selected; a tie does not reset the patience.
        patience: validations without a new best value after which the run stops.
        restore_best: whether the run ends with the best weights instead of the last.
        checkpoint_every: steps between checkpoints; each epoch ends with one in any case.
        log_every: steps between lines of the log; logging waits for the preceding steps on a GPU.
        tensorboard: whether to write event files for TensorBoard, too.
        workers: threads that load batches ahead; 0 loads each batch when needed.

    Raises:
        ValueError: a value is out of range, or values do not match.
    """

    epochs: int = 10
    max_steps: int | None = None
    accumulate: int = 1
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    nesterov: bool = False
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    final_factor: float = 0.0
    clip_norm: float | None = None
    precision: Precision = "auto"
    seed: int = 0
    validate_every: int = 1
    monitor: str | None = None
    mode: Mode = "max"
    ties: Ties = "first"
    patience: int | None = None
    restore_best: bool = False
    checkpoint_every: int | None = None
    log_every: int = 20
    tensorboard: bool = False
    workers: int = 2

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
                raise ValueError(f"{name} is set without a metric; expected monitor, the name of a metric")

    def _check_milestones(self) -> None:
        milestones: object = self.milestones
        if not isinstance(milestones, tuple | list) or not all(map(is_integer, milestones)):
            raise ValueError(f"milestones is {milestones!r}; expected rising epochs from 1")
        object.__setattr__(self, "milestones", tuple(map(int, milestones)))
        if self.milestones and self.schedule != "step":
            raise ValueError(f"milestones is set for the schedule {self.schedule!r}; expected the schedule 'step'")
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
        for name, bound in (("weight_decay", math.inf), ("momentum", 1.0), ("final_factor", 1.0)):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < bound:
                raise ValueError(f"{name} is {value!r}; expected a number in [0, {bound:g})")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is True with momentum 0; expected a momentum above 0")


@dataclass(frozen=True, kw_only=True)
class StepRecipe:
    """Recipe of a training on random batches without end, whose length is given in steps.

    The recipes of the commands add the parameters of the data. A run is resumed only if all fields are equal, so that
    adding or renaming a field invalidates unfinished runs.

    Attributes:
        steps: number of updates.
        optimizer: name of the optimiser.
        learning_rate: largest learning rate, reached after `warmup` steps; then it follows the schedule.
        schedule: "cosine", "constant" or "linear".
        warmup: steps of the linear rise, at most a quarter of all steps.
        weight_decay: weight decay of all weights.
        average: decay of the moving average of the weights, which is the result; 0: the last weights are the result.
        validation: number of validation units (defined by the command), evaluated after every epoch.
        epoch: steps per epoch.
        seed: random seed.
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
        """Return the options of the training loop for this recipe."""
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
