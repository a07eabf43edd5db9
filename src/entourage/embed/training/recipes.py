"""How an embedding is trained: the options, and the ways to train that have a name."""

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
    """A part of a training run."""

    epochs: int
    learning_rate: float
    task: Literal["classification", "metric"] = "metric"  # plain cross-entropy on shuffled batches, or the loss
    schedule: Schedule = "constant"
    milestones: tuple[int, ...] = ()  # of the schedule "step", which divides by ten
    from_best: bool = False  # begin with the best weights so far, not with the last
    only_head: bool = False  # the backbone waits: what starts from nothing would spoil it with its first steps
    weight_decay: float | None = None  # None: the recipe's


@dataclass(frozen=True)
class Recipe:
    """What an embedding is trained with."""

    loss: str = "group"  # or one of `BASELINE_LOSSES`
    group: GroupLossOptions = field(default_factory=lambda: loss_preset("default"))
    classes_per_batch: int = 15
    samples_per_class: int = 4
    size: int = 128  # side of the network's input
    crop: float = 1.0  # share of a decoded image's side that the network sees in the end
    view: AugmentationOptions = field(default_factory=lambda: AugmentationOptions(area=(0.3, 1.0), aspect=4 / 3))
    dimensions: int | None = None  # of an embedding layer; None: the backbone's features as they are
    head: HeadKind = "centres"
    scale: float = 20.0  # of a classifier that looks at cosines
    head_rate: float = 10.0  # what starts from nothing may learn faster
    freeze_norm: bool = True  # statistics of batch normalisation stay those of the pretraining
    average: float | None = 0.99  # decay of a moving average of the weights, which is then what is kept; None: none
    optimizer: OptimizerName = "adamw"
    weight_decay: float = 1e-4
    classification_batch: int = 32
    # With an average of the weights, a constant rate may be stopped anywhere.
    stages: tuple[Stage, ...] = (Stage(1, 2e-4, only_head=True), Stage(10, 2e-4))
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in ("group", *BASELINE_LOSSES):
            raise ValueError(f"loss is {self.loss!r}; expected group or one of {', '.join(BASELINE_LOSSES)}")
        if not self.stages:
            raise ValueError("stages is empty; expected one stage or more")
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop is {self.crop}; expected a share above 0 and up to 1")
        for name in ("classes_per_batch", "samples_per_class", "size", "classification_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if not self.head_rate > 0:
            raise ValueError(f"head_rate is {self.head_rate}; expected a number above 0")

    @property
    def decoded_side(self) -> int:
        """Side of the images that views are taken from."""
        return round(self.size / self.crop)


def _original(name: str, learning_rate: float, weight_decay: float, classes: int, samples: int) -> Recipe:
    return Recipe(
        group=loss_preset(name),
        classes_per_batch=classes,
        samples_per_class=samples,
        size=227,
        crop=227 / 256,
        view=AugmentationOptions(
            area=(0.08, 1.0), aspect=4 / 3
        ),  # the text speaks of crops without scaling, and of no mirror
        head="linear",
        head_rate=1.0,
        freeze_norm=False,
        average=None,
        optimizer="radam",  # the text says Adam
        weight_decay=weight_decay,
        stages=(
            Stage(10, 3e-4, "classification", weight_decay=0.0),  # with an epsilon of 1e-2; here it is RAdam's own
            Stage(30, learning_rate),
            Stage(20, learning_rate / 10, from_best=True),
            Stage(20, learning_rate / 10, from_best=True),  # not a hundredth: the code divides the first rate again
        ),
    )


RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    "thesis": Recipe(
        group=loss_preset("thesis"),
        classes_per_batch=6,  # the text: 30 to 100 samples, best with 9 of each class
        samples_per_class=9,
        size=227,
        crop=227 / 256,
        view=AugmentationOptions(area=((227 / 256) ** 2, (227 / 256) ** 2), flip=0.0),
        head="linear",
        head_rate=1.0,
        freeze_norm=False,
        average=None,
        optimizer="adam",
        weight_decay=0.0,  # searched for between 1e-16 and 0.1; the text says that it makes no difference
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
    """The recipe whose `dataclasses.asdict` went through JSON.

    Raises:
        ValueError: a value is unknown or out of range.
    """
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
        raise ValueError(f"the recipe is not of this version: {error}") from error


def with_epochs(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with as many epochs in all, shared out over its stages as before; each has at least one.

    Stages in which the backbone waits stay as they are and are not counted.

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
    """The stage with so many epochs, and its milestones where they were in proportion."""
    milestones = sorted({max(1, round(at * epochs / stage.epochs)) for at in stage.milestones})
    return replace(stage, epochs=epochs, milestones=tuple(milestones))


def with_loss(recipe: Recipe, loss: str) -> Recipe:
    """The recipe with another loss: a rival has class vectors of its own, or learns from a plain classifier."""
    return replace(recipe, loss=loss) if loss == "group" else replace(recipe, loss=loss, head="linear")


def with_learning_rate(recipe: Recipe, learning_rate: float) -> Recipe:
    """The recipe with this learning rate in its first stage of the loss, and the others scaled alike."""
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate is {learning_rate}; expected a number above 0")
    first = next((stage for stage in recipe.stages if stage.task == "metric"), recipe.stages[0])
    factor = learning_rate / first.learning_rate
    stages = [replace(stage, learning_rate=stage.learning_rate * factor) for stage in recipe.stages]
    return replace(recipe, stages=tuple(stages))


def recipe_preset(name: str) -> Recipe:
    """The recipe of that name; a ValueError lists the names there are."""
    return preset(RECIPES, name, "recipe")
