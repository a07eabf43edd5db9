"""Metrics log of a run: `metrics.jsonl`, one JSON object per line, and optionally TensorBoard."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any

from entourage.extras import extra_imports
from entourage.io.files import write_text

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"


class MetricsLog:
    """Log of losses and metrics; lines of steps that a resumed run repeats are removed first.

    A training line has `step`, `epoch`, `lr`, `losses` and `seconds`, a validation line `step`, `epoch`, `metrics` and
    `seconds`. The losses are means over the steps since the previous line. A value that is not finite is null.

    Args:
        folder: run directory; None: nothing is logged.
        step: number of updates made so far.
        tensorboard: whether to write event files, too.

    Raises:
        ValueError: TensorBoard is requested but not installed.
    """

    def __init__(self, folder: Path | None, step: int = 0, tensorboard: bool = False) -> None:
        self._file = None
        self._writer: Any = None
        if folder is None:
            return
        if tensorboard:
            self._writer = _summary_writer(folder / TENSORBOARD, step)
        truncate_log(folder / METRICS, step)
        self._file = (folder / METRICS).open("a", encoding="utf-8")

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._writer is not None:
            self._writer.close()

    def train(self, step: int, epoch: int, rate: float, losses: dict[str, float], seconds: float) -> None:
        """Log the means of the losses over the steps since the previous line."""
        self._write({"step": step, "epoch": epoch, "lr": rate, "losses": losses, "seconds": round(seconds, 3)})
        self._plot(step, {"lr": rate, **{f"train/{name}": value for name, value in losses.items()}})

    def validation(self, step: int, epoch: int, metrics: dict[str, float], seconds: float) -> None:
        """Log the metrics of the validation after a step."""
        self._write({"step": step, "epoch": epoch, "metrics": metrics, "seconds": round(seconds, 3)})
        self._plot(step, {f"validation/{name}": value for name, value in metrics.items()})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(_finite(line), allow_nan=False) + "\n")
            self._file.flush()  # the line must be on disk before a checkpoint includes its step

    def _plot(self, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()


def truncate_log(path: Path, step: int) -> None:
    """Remove the lines after a step, which a resumed run repeats, and a last line that a kill left incomplete."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            if not line.endswith("\n") or json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError, TypeError):
            break
        kept.append(line)
    write_text(path, "".join(kept))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary_writer(folder: Path, step: int) -> Any:
    with extra_imports():
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder), purge_step=step + 1)
