"""The one training loop: checkpoints, exact resume, several processes, seeds, early stopping, a record of the run."""

from entourage.training.checkpoint import TrainingResult
from entourage.training.loop import train
from entourage.training.meters import NonFiniteLossError
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import AveragedTask, Losses, Task, WeightAverage

__all__ = [
    "AveragedTask",
    "Losses",
    "NonFiniteLossError",
    "StepRecipe",
    "Task",
    "TrainingOptions",
    "TrainingResult",
    "WeightAverage",
    "train",
]
