"""Training a network to cluster, to the end or for a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from entourage.cluster.models.model import ClusterNetwork
from entourage.cluster.pace import steps_within
from entourage.cluster.task import ClusterTask
from entourage.training.loop import train
from entourage.training.state import TrainingResult


def learn(
    task: ClusterTask,
    run: Path | None = None,
    *,
    minutes: float | None = None,
    device: str = "auto",
    progress: bool | None = None,
    title: str = "Learning to cluster",
) -> tuple[ClusterNetwork, TrainingResult]:
    """Trains to the end, going on where an earlier call with the same folder was stopped.

    Args:
        task: what is trained.
        run: the folder for checkpoints; None keeps none.
        minutes: how long it may take, in place of the recipe's steps: a trial, of a tenth of that time or two steps,
            tells how many there will be, two at least, and the folder remembers it.
        device: where to train.
        progress: show a line; None: only on a terminal.
        title: what the line calls it.

    Returns:
        The trained network, in evaluation mode, and how the run went. Its notes say what the task is about, how long it
        has learned, earlier trainings included, and with how many items at once.
    """
    before = task.network.notes
    if minutes is not None:
        steps = steps_within(task, run, minutes, device, progress=progress)
        task.recipe = replace(task.recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run, device=device, progress=progress, title=title)
    network = task.outcome()
    if not isinstance(network, ClusterNetwork):
        raise TypeError(f"the outcome is a {type(network).__name__}; expected a ClusterNetwork")
    spent = {"steps": result.steps, "seconds": round(result.seconds)}
    network.notes = {
        **task.about,
        **{name: str(int(before.get(name, 0)) + value) for name, value in spent.items()},
        "set_size": str(task.recipe.curriculum.most),
    }
    return network.eval(), result
