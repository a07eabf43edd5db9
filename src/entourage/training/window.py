"""The losses since they were last looked at: on the device until then, so that no step waits for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from entourage.training.task import Losses


class NonFiniteLossError(ValueError):
    """A loss, or the weights after a step, became infinite or not a number; the run has stopped."""


@dataclass(frozen=True)
class Reading:
    """What a window held.

    Attributes:
        means: the mean of each loss over batches and processes.
        broken: name and step of the first loss that was not finite in any process, or None.
    """

    means: dict[str, float]
    broken: tuple[str, int] | None


class LossWindow:
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

    def read(self, accelerator: Accelerator, step: int) -> Reading:
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
        broken = None
        if len(bad):
            batch, part = bad[0].tolist()
            broken = (self._names[part], step - (batches - 1 - batch) // self.accumulate)
        return Reading(dict(zip(self._names, values.mean(dim=(0, 1)).tolist(), strict=True)), broken)
