"""Recipes: the options of a training, and named presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from entourage.embed.losses.options import GroupLossOptions, loss_preset
from entourage.embed.losses.pml import BASELINE_LOSSES
from entourage.embed.models import HeadKind
from entourage.training.images import AugmentationOptions
from entourage.training.options import OptimizerName, Schedule
from entourage.validation import preset


@dataclass(frozen=True)
class Stage:
    """A stage of a training run.

    Attributes:
        epochs: number of epochs.
        learning_rate: learning rate of the backbone.
        task: "metric" for the loss of the recipe on class-balanced batches, "classification" for cross-entropy on
            shuffled batches.
        schedule: learning rate schedule.
        milestones: epochs at whose start the schedule "step" divides the learning rate by ten.
        from_best: whether to start from the best weights so far rather than the last.
        only_head: whether the backbone is frozen; gradients of a randomly initialised classifier would damage it.
        weight_decay: weight decay; None for that of the recipe.
    """

    epochs: int
    learning_rate: float
    task: Literal["classification", "metric"] = "metric"
    schedule: Schedule = "constant"
    milestones: tuple[int, ...] = ()
    from_best: bool = False
    only_head: bool = False
    weight_decay: float | None = None


@dataclass(frozen=True)
class Recipe:
    """Options of a training.

    Attributes:
        loss: "group" or one of `BASELINE_LOSSES`.
        group: options of the Group Loss.
        classes_per_batch: number of classes in a batch.
        samples_per_class: number of images of each class in a batch.
        size: side of the network's input in pixels.
        crop: fraction of the side of a decoded image that is embedded, after a centre crop.
        view: random augmentation of training images.
        dimensions: dimension of a linear embedding layer; None uses the features of the backbone as embeddings.
        head: kind of classifier, see `make_head`.
        scale: factor of the cosines of a cosine classifier.
        head_rate: learning rate of randomly initialised parameters, as a multiple of the backbone's.
        freeze_norm: whether batch normalisation keeps its pretrained statistics.
        average: decay of an exponential moving average of the weights, which is evaluated and saved; None for no
            average.
        optimizer: name of the optimiser.
        weight_decay: weight decay.
        classification_batch: batch size of stages with the task "classification".
        stages: stages of the training.
        seed: random seed.

    Raises:
        ValueError: a value is out of range.
    """

    loss: str = "group"
    group: GroupLossOptions = field(default_factory=lambda: loss_preset("default"))
    classes_per_batch: int = 15
    samples_per_class: int = 4
    size: int = 128
    crop: float = 1.0
    view: AugmentationOptions = field(default_factory=lambda: AugmentationOptions(area=(0.3, 1.0), aspect=4 / 3))
    dimensions: int | None = None
    head: HeadKind = "centres"
    scale: float = 20.0
    head_rate: float = 10.0
    freeze_norm: bool = True
    average: float | None = 0.99
    optimizer: OptimizerName = "adamw"
    weight_decay: float = 1e-4
    classification_batch: int = 32
    # With averaged weights the learning rate may be constant, so that a training can end after any epoch.
    stages: tuple[Stage, ...] = (Stage(1, 2e-4, only_head=True), Stage(10, 2e-4))
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in ("group", *BASELINE_LOSSES):
            raise ValueError(f"loss is {self.loss!r}; expected group or one of {', '.join(BASELINE_LOSSES)}")
        if not self.stages:
            raise ValueError("stages is empty; expected one stage or more")
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop is {self.crop}; expected a number above 0 and up to 1")
        for name in ("classes_per_batch", "samples_per_class", "size", "classification_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if not self.head_rate > 0:
            raise ValueError(f"head_rate is {self.head_rate}; expected a number above 0")

    @property
    def decoded_side(self) -> int:
        """Side in pixels that images are decoded to."""
        return round(self.size / self.crop)


def _original(name: str, learning_rate: float, weight_decay: float, classes: int, samples: int) -> Recipe:
    return Recipe(
        group=loss_preset(name),
        classes_per_batch=classes,
        samples_per_class=samples,
        size=227,
        crop=227 / 256,
        view=AugmentationOptions(area=(0.08, 1.0), aspect=4 / 3),  # thesis: crops without scaling or flips
        head="linear",
        head_rate=1.0,
        freeze_norm=False,
        average=None,
        optimizer="radam",  # thesis: Adam
        weight_decay=weight_decay,
        stages=(
            Stage(10, 3e-4, "classification", weight_decay=0.0),  # original: epsilon 1e-2; here RAdam's default
            Stage(30, learning_rate),
            Stage(20, learning_rate / 10, from_best=True),
            Stage(20, learning_rate / 10, from_best=True),  # not a hundredth: the code divides the first rate again
        ),
    )


RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    "thesis": Recipe(
        group=loss_preset("thesis"),
        classes_per_batch=6,  # thesis: 30 to 100 samples, best with 9 of each class
        samples_per_class=9,
        size=227,
        crop=227 / 256,
        view=AugmentationOptions(area=((227 / 256) ** 2, (227 / 256) ** 2), flip=0.0),
        head="linear",
        head_rate=1.0,
        freeze_norm=False,
        average=None,
        optimizer="adam",
        weight_decay=0.0,  # the thesis searches from 1e-16 to 0.1 and reports no effect
        stages=(
            Stage(10, 2e-4, "classification"),
            Stage(60, 2e-4, schedule="step", milestones=(30,)),
        ),
    ),
    "original-cub": _original("original-cub", 1.5637e-4, 6.06e-6, classes=6, samples=9),
    "original-cars": _original("original-cars", 2e-4, 4.86e-7, classes=5, samples=7),
    "original-sop": _original("original-sop", 6.0777e-4, 5.27e-12, classes=10, samples=6),
}


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe:
    """Create a recipe from the JSON of its `dataclasses.asdict`; a ValueError if a value is unknown or out of range."""
    try:
        view = {**values["view"], "area": tuple(values["view"]["area"])}
        stages = [Stage(**{**stage, "milestones": tuple(stage["milestones"])}) for stage in values["stages"]]
        parts = {
            "group": GroupLossOptions(**values["group"]),
            "view": AugmentationOptions(**view),
            "stages": tuple(stages),
        }
        return Recipe(**{**values, **parts})
    except (KeyError, TypeError) as error:
        raise ValueError(f"recipe: invalid ({error}); expected one of this version") from error


def with_epochs(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe with another number of epochs, distributed over its stages in proportion, one each at least.

    Stages that train only the head are unchanged and do not count.

    Args:
        recipe: the recipe.
        epochs: total number of epochs.

    Returns:
        The changed recipe.

    Raises:
        ValueError: there are fewer epochs than stages.
    """
    trained = [stage for stage in recipe.stages if not stage.only_head]
    if epochs < len(trained):
        raise ValueError(f"epochs is {epochs}; expected {len(trained)} or more, one for each stage of the recipe")
    total = sum(stage.epochs for stage in trained)
    extra = epochs - len(trained)
    ends = [round(extra * sum(s.epochs for s in trained[: n + 1]) / total) for n in range(len(trained))]
    counts = iter([1 + end - begin for begin, end in zip([0, *ends], ends, strict=False)])
    stages = [stage if stage.only_head else _with_stage_epochs(stage, next(counts)) for stage in recipe.stages]
    return replace(recipe, stages=tuple(stages))


def _with_stage_epochs(stage: Stage, epochs: int) -> Stage:
    """Return the stage with another number of epochs, and its milestones scaled in proportion."""
    milestones = sorted({max(1, round(at * epochs / stage.epochs)) for at in stage.milestones})
    return replace(stage, epochs=epochs, milestones=tuple(milestones))


def with_loss(recipe: Recipe, loss: str) -> Recipe:
    """Return the recipe with another loss; baselines have their own proxies or use a linear classifier."""
    return replace(recipe, loss=loss) if loss == "group" else replace(recipe, loss=loss, head="linear")


def with_learning_rate(recipe: Recipe, learning_rate: float) -> Recipe:
    """Return the recipe with a learning rate in its first "metric" stage; others are scaled by the same factor."""
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate is {learning_rate}; expected a number above 0")
    first = next((stage for stage in recipe.stages if stage.task == "metric"), recipe.stages[0])
    factor = learning_rate / first.learning_rate
    stages = [replace(stage, learning_rate=stage.learning_rate * factor) for stage in recipe.stages]
    return replace(recipe, stages=tuple(stages))


def recipe_preset(name: str) -> Recipe:
    """Return a named recipe; the ValueError for an unknown name lists the names."""
    return preset(RECIPES, name, "recipe")
