"""The thesis' schedule: pre-training, each loss by itself, energy again, then all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from entourage.detect.models.model import WatershedDetector
from entourage.detect.training.pretrain import ColourTask, PatchTask
from entourage.detect.training.recipe import Recipe
from entourage.detect.training.task import DetectionTask
from entourage.training.loop import train
from entourage.training.state import TrainingResult
from entourage.training.task import Task

ALL = ("energy", "class", "box")


@dataclass(frozen=True)
class Stage:
    """A part of the schedule.

    Attributes:
        name: of the stage.
        share: of all steps.
        terms: the losses that are minimised; none in the two stages of pre-training, "patches" and "colours".
    """

    name: str
    share: float
    terms: tuple[str, ...] = ()


# The shares of the original's recipe: 20, 20, 20, 10 and 30 thousand steps, after two kinds of pre-training.
STAGES = (
    Stage("patches", 0.10),
    Stage("colours", 0.15),
    Stage("energy", 0.15, ("energy",)),
    Stage("class", 0.15, ("class",)),
    Stage("box", 0.15, ("box",)),
    Stage("energy again", 0.075, ("energy",)),
    Stage("all", 0.225, ALL),
)


def train_in_stages(
    task: DetectionTask,
    stages: Sequence[Stage] = STAGES,
    run: Path | None = None,
    *,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[WatershedDetector, TrainingResult]:
    """Trains the task's detector stage by stage, each going on with the weights of the one before.

    Args:
        task: gives the detector, the pages and the recipe, whose steps the stages share.
        stages: in order; the last must train the detector.
        run: the folder for checkpoints, one below it a stage; None keeps none.
        device: where to train.
        progress: show a line; None: only on a terminal.

    Returns:
        The trained detector, in evaluation mode, and how it all went.

    Raises:
        ValueError: there is no stage, or the last trains no loss of the detector.
    """
    if not stages or not stages[-1].terms:
        raise ValueError("the last stage trains no loss of the detector; expected one that does")
    seconds, steps, metrics = 0.0, 0, {}
    last: DetectionTask = task
    for number, stage in enumerate(stages):
        recipe = replace(task.recipe, steps=max(1, round(stage.share * task.recipe.steps)))
        folder = None if run is None else run / f"stage-{number}-{stage.name.replace(' ', '-')}"
        current = _stage_task(task, stage, recipe, last=number == len(stages) - 1)
        current.whole = run  # each stage goes on from the one before
        title = f"Stage {number + 1}: {stage.name}"
        result = train(current, recipe.training_options(), folder, device=device, progress=progress, title=title)
        seconds, steps, metrics = seconds + result.seconds, steps + result.steps, result.metrics
        if isinstance(current, DetectionTask):
            last = current
    return last.trained(), replace(result, steps=steps, seconds=seconds, metrics=metrics)


def _stage_task(task: DetectionTask, stage: Stage, recipe: Recipe, *, last: bool) -> Task[Any, Any]:
    if stage.name == "patches":
        return PatchTask(task.detector, task.sheets, recipe)
    if stage.name == "colours":
        return ColourTask(task.detector, task.sheets, recipe)
    if last:
        return DetectionTask(task.detector, task.sheets, task.validation, recipe, terms=stage.terms, say=task.say)
    # Between stages the weights themselves go on; their average is for the end.
    return DetectionTask(task.detector, task.sheets, [], replace(recipe, average=0.0), terms=stage.terms)
