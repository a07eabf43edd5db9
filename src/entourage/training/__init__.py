"""Training loop with checkpoints, exact resume, distributed processes, early stopping and a log of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.training.checkpoint import TrainingResult
    from entourage.training.loop import train
    from entourage.training.meters import NonFiniteLossError
    from entourage.training.options import TrainingOptions
    from entourage.training.task import EMATask, Task

__all__ = ["EMATask", "NonFiniteLossError", "Task", "TrainingOptions", "TrainingResult", "train"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "checkpoint": ("TrainingResult",),
        "loop": ("train",),
        "meters": ("NonFiniteLossError",),
        "options": ("TrainingOptions",),
        "task": ("EMATask", "Task"),
    },
)
