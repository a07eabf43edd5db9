"""A task whose outcome is the moving average of its weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from entourage.training.average import WeightAverage
from entourage.training.task import Batch, Item, Task

_AVERAGE = "average."


class AveragedTask(Task[Item, Batch]):
    """A task that keeps an average of its weights beside them, if it is told to.

    The average follows every step, goes to the device with the model, is what is validated and kept, and is found
    again when a run continues. A subclass with an `after_step`, a `prepare` or an extra state of its own calls these.

    Args:
        model: the network that is trained.
        decay: the share of the average that an update keeps, see `WeightAverage`; None or 0: there is no average, and
            the outcome is the model.

    Attributes:
        average: of the model's weights; None where there is none.
    """

    average: WeightAverage | None

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.model = model
        self.average = WeightAverage(model, decay) if decay else None

    def prepare(self, device: torch.device) -> None:
        """The average goes where the model is."""
        if self.average is not None:
            self.average.module.to(device)

    def after_step(self, step: int) -> None:
        """The average follows the weights."""
        if self.average is not None:
            self.average.update(self.model)

    def outcome(self) -> nn.Module:
        """The average, or the model where there is none."""
        return self.model if self.average is None else self.average.module

    def extra_state(self) -> dict[str, Tensor]:
        """The average, under names that begin with "average."."""
        return {} if self.average is None else {f"{_AVERAGE}{k}": value for k, value in self.average.state().items()}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the average back.

        Raises:
            ValueError: the state holds something else, or an average that this task does not keep.
        """
        own = {} if self.average is None else {name: v for name, v in state.items() if name.startswith(_AVERAGE)}
        super().load_extra_state({name: value for name, value in state.items() if name not in own})
        if self.average is not None:
            self.average.load_state({name.removeprefix(_AVERAGE): value for name, value in own.items()})
