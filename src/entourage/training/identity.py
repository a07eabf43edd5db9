"""Which run a folder holds: options and a description that must not change while it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from entourage.training.options import TrainingOptions
from entourage.training.task import Task

_FREE = ("tensorboard", "workers")  # what changes no weight and no line of the metrics


def identity(task: Task[Any, Any], options: TrainingOptions, precision: str, processes: int) -> dict[str, Any]:
    """What makes a run this run and not another.

    Args:
        task: gives its own description.
        options: all count but those that change no result.
        precision: what "auto" came to on this machine.
        processes: how many share the work.

    Returns:
        Values by name, as they come back from JSON.
    """
    fixed = {name: value for name, value in asdict(options).items() if name not in _FREE}
    values = {**fixed, "precision": precision, "processes": processes, "task": type(task).__name__}
    described = {f"task.{name}": value for name, value in task.describe().items()}
    return dict(json.loads(json.dumps({**values, **described})))


def check_same_run(folder: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a run under other circumstances.

    Raises:
        ValueError: names the first value that differs.
    """
    for name in [*now, *(name for name in then if name not in now)]:
        before, after = then.get(name, "not set"), now.get(name, "not set")
        if before != after:
            raise ValueError(
                f"{folder} holds a run with {name} {before!r}, now {after!r}; "
                "continue it as it was started, or choose another folder"
            )
