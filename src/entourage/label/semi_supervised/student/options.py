"""Options of the student network's training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training.images import WEAK, AugmentationOptions
from entourage.training.options import TrainingOptions
from entourage.validation import validate_counts

MIN_IMAGES = 5000  # images from which the student is trained by default; fewer do not train a network from scratch
SMALL_SIDE, MEDIUM_SIDE = 48, 96  # images up to these sides keep their size, or have 64 pixels; larger ones have 96

STRONG = AugmentationOptions(  # weaker than for networks with an input of 160 pixels: details are a few pixels wide
    area=(0.5, 1.0),
    aspect=4 / 3,
    rotate=20.0,
    shear=0.15,
    brightness=0.5,
    contrast=0.5,
    saturation=0.5,
    hue=0.06,
    grey=0.1,
    solarise=0.1,
    erase=0.5,
)


@dataclass(frozen=True)
class StudentOptions:
    """Options of `train_student`.

    Attributes:
        size: side of the student's input in pixels; "auto": that of the images up to 48 pixels, 64 for images of up to
            96 pixels, and 96 for larger ones.
        views: weak and strong views; all of them are made in every step.
        method_options: sizes of the batches, steps per epoch (`min_steps`), and decay of the averaged weights.
        training: options of the optimisation; the number of steps is `epochs` times the steps of an epoch.
    """

    size: int | Literal["auto"] = "auto"
    views: ViewOptions = field(default_factory=lambda: ViewOptions(weak=WEAK, strong=STRONG))
    method_options: MethodOptions = field(
        default_factory=lambda: MethodOptions(
            labelled_batch=64,
            unlabelled_batch=1024,
            min_steps=500,
            ema_decay=0.999,
            freeze_norm=False,
            head_lr_scale=1.0,
        )
    )
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            epochs=40,
            optimizer="sgd",
            learning_rate=0.07,
            momentum=0.9,
            nesterov=True,
            weight_decay=5e-4,
            schedule="cosine",
            final_factor=0.2,
            warmup_steps=200,
            monitor="agreement",
            patience=12,
        )
    )

    def __post_init__(self) -> None:
        if self.size != "auto":
            validate_counts(self, 16, "size", alternative=", or 'auto'")

    def side(self, height: int, width: int) -> int:
        """Return the side of the student's input for images of this size; a multiple of 8, at least 16."""
        if self.size != "auto":
            return self.size
        largest = max(height, width)
        if largest > MEDIUM_SIDE:
            return 96
        return 64 if largest > SMALL_SIDE else max(16, 8 * round(largest / 8))
