"""The one line a run shows while it goes on.

The losses since they were last looked at: on the device until then, so that no step waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from entourage.io.progress import is_shown
from entourage.training.task import Losses


class ProgressLine:
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
def progress_line(title: str, step: int, total: int, epochs: int, show: bool | None) -> Iterator[ProgressLine]:
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
        yield ProgressLine(progress, row, epochs)


class NonFiniteLossError(ValueError):
    """A loss, or the weights after a step, became infinite or not a number; the run has stopped."""


@dataclass(frozen=True)
class LossReading:
    """What a window held.

    Attributes:
        means: the mean of each loss over batches and processes.
        non_finite: name and step of the first loss that was not finite in any process, or None.
    """

    means: dict[str, float]
    non_finite: tuple[str, int] | None


class LossMeter:
    """Collects the losses of the batches one by one; a look at them empties it.

    Args:
        accumulate: batches in a step.
    """

    def __init__(self, accumulate: int = 1) -> None:
        self.accumulate = accumulate
        self._names: tuple[str, ...] = ()
        self._rows: list[Tensor] = []  # (parts,) each, one a batch

    def add(self, losses: Losses) -> Tensor:
        """Take the losses of a batch.

        Returns:
            The one that is minimised.

        Raises:
            ValueError: there is no "loss", one is no scalar, or the names differ from those of the batches before.
        """
        names = tuple(losses)
        if names != self._names:
            if self._names or "loss" not in names:
                expected = ", ".join(self._names) if self._names else "'loss' among them, at every step the same"
                raise ValueError(f"the task returned the losses {', '.join(names) or 'none'}; expected {expected}")
            self._names = names
        for name, value in losses.items():
            if value.ndim:
                raise ValueError(f"{name!r} has shape {tuple(value.shape)}; expected a scalar")
        self._rows.append(torch.stack([value.detach() for value in losses.values()]))
        return losses["loss"]

    def read(self, accelerator: Accelerator, step: int) -> LossReading:
        """Look at all processes' losses and forget them.

        Args:
            accelerator: knows the other processes; all of them must call this together.
            step: updates made so far, the last of them with the last batch taken.
        """
        rows = torch.stack(self._rows)  # (batches, parts)
        self._rows = []
        batches = len(rows)
        values = accelerator.gather(rows).reshape(-1, *rows.shape).cpu().double()  # (processes, batches, parts)
        bad = (~values.isfinite()).any(dim=0).nonzero()  # (k, 2), by batch, then by part
        non_finite = None
        if len(bad):
            batch, part = bad[0].tolist()
            non_finite = (self._names[part], step - (batches - 1 - batch) // self.accumulate)
        return LossReading(dict(zip(self._names, values.mean(dim=(0, 1)).tolist(), strict=True)), non_finite)
