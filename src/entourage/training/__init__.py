"""The one training loop: checkpoints, exact resume, several processes, seeds, early stopping, a record of the run."""

from entourage.training.average import WeightAverage
from entourage.training.averaged import AveragedTask
from entourage.training.loop import train
from entourage.training.options import TrainingOptions
from entourage.training.recipe import StepRecipe
from entourage.training.state import TrainingResult
from entourage.training.task import Losses, Task
from entourage.training.window import NonFiniteLossError

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
