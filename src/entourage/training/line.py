"""The one line a run shows while it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from entourage.io.progress import is_shown


class TrainingLine:
    """Title, epoch, loss, metric, a bar over the steps, and the time left."""

    def __init__(self, progress: Progress, row: TaskID, epochs: int) -> None:
        self._progress = progress
        self._row = row
        self._epochs = epochs

    def losses(self, step: int, epoch: int, losses: Mapping[str, float]) -> None:
        """Show where the run stands; `epoch` counts from 0."""
        epoch_text = f"epoch {epoch + 1}/{self._epochs}"
        self._progress.update(self._row, completed=step, epoch=epoch_text, loss=f"loss {losses['loss']:.4g}")

    def metrics(self, metrics: Mapping[str, float], monitor: str | None) -> None:
        """Show the monitored metric, or the first one."""
        name = monitor if monitor is not None else next(iter(metrics), None)
        if name is not None:
            self._progress.update(self._row, metric=f"{name} {metrics[name]:.4g}")


@contextmanager
def training_line(title: str, step: int, total: int, epochs: int, show: bool | None) -> Iterator[TrainingLine]:
    """Show the line on stderr while the block runs.

    Args:
        title: what is being trained.
        step: updates made so far.
        total: updates there will be.
        epochs: epochs there will be.
        show: see `is_shown`.

    Yields:
        The line, to be told what is new.
    """
    texts = ("{task.description}", "{task.fields[epoch]}", "{task.fields[loss]}", "{task.fields[metric]}")
    columns = (*(TextColumn(text) for text in texts), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown(show)) as progress:
        row = progress.add_task(title, total=total, completed=step, epoch="", loss="", metric="")
        yield TrainingLine(progress, row, epochs)
