"""How a detector is trained: steps, windows, disguise, optimiser."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from entourage.detect.training.views import ViewOptions
from entourage.detect.training.windows import WindowOptions
from entourage.training.options import TrainingOptions
from entourage.training.recipe import StepRecipe

CHECKPOINT_STEPS = 100  # what a run that is stopped loses at most; an epoch has thousands


@dataclass(frozen=True, kw_only=True)
class Recipe(StepRecipe):
    """How a detector is trained; `validation` counts pages, at most.

    Attributes:
        batch: windows a step.
        window: how they are drawn.
        view: how they are disguised; None leaves them as they are.
        margin: crops of rare symbols on top of each window; the thesis has 12.
        clip_norm: longest gradient.
    """

    batch: int = 16
    window: WindowOptions = field(default_factory=WindowOptions)
    view: ViewOptions | None = field(default_factory=ViewOptions)
    margin: int = 0
    warmup: int = 300
    weight_decay: float = 0.02
    clip_norm: float = 5.0
    validation: int = 8
    epoch: int = 3000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; expected 1 or more")
        if self.margin < 0:
            raise ValueError(f"margin is {self.margin}; expected a number of crops, or 0 for none")

    @classmethod
    def for_handwriting(cls) -> Recipe:
        """For a few pages by many hands, from a detector that knows print: wider pages, more variation, slower."""
        window = WindowOptions(height=384, width=1280, plain=0.15, zoom=0.12, stretch=0.08)
        return cls(steps=4000, batch=12, window=window, learning_rate=7e-4, warmup=200, epoch=1000)

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        return replace(super().training_options(), clip_norm=self.clip_norm, checkpoint_every=CHECKPOINT_STEPS)
