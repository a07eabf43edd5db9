"""How a detector is trained: steps, windows, disguise, optimiser."""

from __future__ import annotations

from dataclasses import dataclass, field

from entourage.detect.views import ViewOptions
from entourage.detect.windows import WindowOptions
from entourage.training import TrainingOptions
from entourage.training.options import OptimizerName, Schedule


@dataclass(frozen=True)
class Recipe:
    """How a detector is trained.

    Attributes:
        steps: updates of the weights.
        batch: windows a step.
        window: how they are drawn.
        view: how they are disguised; None leaves them as they are.
        margin: crops of rare symbols on top of each window; the thesis has 12.
        optimizer: of the training loop.
        learning_rate: the highest; it rises over `warmup` steps and then follows the schedule.
        schedule: "cosine", "constant" or "linear".
        warmup: steps.
        weight_decay: L2, of all weights.
        clip_norm: longest gradient.
        average: decay of the moving average of the weights, which is what is kept; 0 keeps the last weights.
        validation: pages to validate with, at most, after every epoch.
        epoch: steps of an epoch.
        seed: of everything.
    """

    steps: int = 20_000
    batch: int = 16
    window: WindowOptions = field(default_factory=WindowOptions)
    view: ViewOptions | None = field(default_factory=ViewOptions)
    margin: int = 0
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    warmup: int = 300
    weight_decay: float = 0.02
    clip_norm: float = 5.0
    average: float = 0.999
    validation: int = 8
    epoch: int = 3000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "epoch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.margin < 0:
            raise ValueError(f"margin is {self.margin}; expected a number of crops, or 0 for none")

    @classmethod
    def for_handwriting(cls) -> Recipe:
        """For a few pages by many hands, from a detector that knows print: wider pages, more variation, slower."""
        window = WindowOptions(height=384, width=1280, plain=0.15, zoom=0.12, stretch=0.08)
        return cls(steps=4000, batch=12, window=window, learning_rate=7e-4, warmup=200, epoch=1000)

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        return TrainingOptions(
            epochs=max(1, -(-self.steps // self.epoch)),
            max_steps=self.steps,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            warmup_steps=min(self.warmup, self.steps // 4),
            clip_norm=self.clip_norm,
            seed=self.seed,
            log_every=50,
            workers=2,
        )
