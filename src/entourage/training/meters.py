"""Progress line and mean losses of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from entourage.io.progress import is_shown, progress_lines
from entourage.training.task import Losses

if TYPE_CHECKING:
    from accelerate import Accelerator


class ProgressLine:
    """Progress line with title, epoch, loss, metric, a bar over the steps and the remaining time."""

    def __init__(self, progress: Progress, row: TaskID, epochs: int) -> None:
        self._progress = progress
        self._row = row
        self._epochs = epochs

    def losses(self, step: int, epoch: int, losses: Mapping[str, float]) -> None:
        """Show the current loss and the progress on the line; `epoch` counts from 0."""
        epoch_text = f"epoch {epoch + 1}/{self._epochs}"
        self._progress.update(self._row, completed=step, epoch=epoch_text, loss=f"loss {losses['loss']:.4g}")

    def metrics(self, metrics: Mapping[str, float], monitor: str | None) -> None:
        """Show a metric on the line: the monitored one, or else the first."""
        name = monitor if monitor is not None else next(iter(metrics), None)
        if name is not None:
            self._progress.update(self._row, metric=f"{name} {metrics[name]:.4g}")


@contextmanager
def progress_line(title: str, step: int, total: int, epochs: int, show: bool | None) -> Iterator[ProgressLine]:
    """Show a progress line on stderr until the block ends.

    Args:
        title: title of the line.
        step: number of updates so far.
        total: total number of updates.
        epochs: total number of epochs.
        show: see `is_shown`.

    Yields:
        The line.
    """
    texts = ("{task.description}", "{task.fields[epoch]}", "{task.fields[loss]}", "{task.fields[metric]}")
    columns = (*(TextColumn(text) for text in texts), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown(show)) as progress:
        row = progress.add_task(title, total=total, completed=step, epoch="", loss="", metric="")
        task = progress.tasks[0]

        def describe() -> str:
            texts = (
                f"{task.completed:.0f} of {total} steps",
                *(task.fields[name] for name in ("epoch", "loss", "metric")),
            )
            return ", ".join(text for text in texts if text)

        with progress_lines(title, describe, show):
            yield ProgressLine(progress, row, epochs)


class NonFiniteLossError(ValueError):
    """Error for a run that was stopped because a loss or a weight became infinite or NaN."""


@dataclass(frozen=True)
class LossReading:
    """Losses that `LossMeter` has collected since its previous reading.

    Attributes:
        means: mean of each loss over batches and processes.
        non_finite: name and step of the first non-finite loss of any process, or None.
    """

    means: dict[str, float]
    non_finite: tuple[str, int] | None


class LossMeter:
    """Losses of the batches since the last reading; they stay on the device until then, so that no step waits for it.

    Args:
        accumulate: batches per step.
    """

    def __init__(self, accumulate: int = 1) -> None:
        self.accumulate = accumulate
        self._names: tuple[str, ...] = ()
        self._rows: list[Tensor] = []  # one per batch, shape (losses,)

    def add(self, losses: Losses) -> Tensor:
        """Add the losses of a batch to those since the last reading.

        Returns:
            The loss to minimise.

        Raises:
            ValueError: "loss" is missing, a value is not a scalar, or the names differ from those of earlier batches.
        """
        names = tuple(losses)
        if names != self._names:
            if self._names or "loss" not in names:
                expected = ", ".join(self._names) if self._names else "'loss', and the same names at every step"
                raise ValueError(f"Task.loss returned {', '.join(names) or 'no losses'}; expected {expected}")
            self._names = names
        for name, value in losses.items():
            if value.ndim:
                raise ValueError(f"{name!r} has shape {tuple(value.shape)}; expected a scalar")
        self._rows.append(torch.stack([value.detach() for value in losses.values()]))
        return losses["loss"]

    def read(self, accelerator: Accelerator, step: int) -> LossReading:
        """Return the losses of all processes since the last reading, and remove them.

        Args:
            accelerator: connection to the other processes, all of which must call this method.
            step: number of updates so far, including that of the last batch.
        """
        rows = torch.stack(self._rows)  # (batches, losses)
        self._rows = []
        batches = len(rows)
        values = accelerator.gather(rows).reshape(-1, *rows.shape).cpu().double()  # (processes, batches, losses)
        bad = (~values.isfinite()).any(dim=0).nonzero()  # (k, 2), by batch, then by loss
        non_finite = None
        if len(bad):
            batch, column = bad[0].tolist()
            non_finite = (self._names[column], step - (batches - 1 - batch) // self.accumulate)
        return LossReading(dict(zip(self._names, values.mean(dim=(0, 1)).tolist(), strict=True)), non_finite)
