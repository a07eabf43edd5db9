"""What every recipe says that counts in steps: how many, how fast, and how often to look at what was learned."""

from __future__ import annotations

from dataclasses import dataclass

from entourage.checks import keep_counts
from entourage.training.options import OptimizerName, Schedule, TrainingOptions


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
        keep_counts(self, 1, "steps", "epoch")
        keep_counts(self, 0, "warmup", "validation", "seed")

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
