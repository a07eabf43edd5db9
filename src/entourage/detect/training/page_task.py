"""What all trainings on windows of pages share: the pages, where they are, and steps by number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from entourage.detect.training.recipe import Recipe
from entourage.detect.training.sheets import Sheets
from entourage.training.averaged import AveragedTask
from entourage.training.task import Batch


class PageTask(AveragedTask[int, Batch]):
    """A task whose steps are numbers; what they draw comes from the loop's generator.

    Args:
        model: is trained in place.
        sheets: the pages.
        recipe: how.
        decay: of the average of the weights, as for `AveragedTask`.

    Attributes:
        device: where training takes place.
    """

    def __init__(self, model: nn.Module, sheets: Sheets, recipe: Recipe, decay: float | None = None) -> None:
        super().__init__(model, decay)
        self.sheets = sheets
        self.recipe = recipe
        self.device = torch.device("cpu")

    def prepare(self, device: torch.device) -> None:
        """Takes the pages to the device, if they fit."""
        super().prepare(device)
        self.device = device
        self.sheets.move(device)

    def plan(self, epoch: int) -> Sequence[int]:
        """The numbers of an epoch's steps."""
        return range(epoch * self.recipe.epoch, (epoch + 1) * self.recipe.epoch)
