"""What is trained: a network, its data and its loss. The loop does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

Item = TypeVar("Item")
Batch = TypeVar("Batch")

Losses = Mapping[str, Tensor]
"""Scalars by name, the same names at every step: "loss" is minimised, the others are its parts and only logged."""


class Task(ABC, Generic[Item, Batch]):
    """What a verb hands to `train`.

    Attributes:
        model: the network. All that is learnt is a parameter of it, also what a loss learns (proxies, temperatures):
            only its weights are averaged over processes and kept in checkpoints. A part of it that must stay in
            evaluation mode overrides its own `train`.
        skips_parameters: whether some parameters take no part in some steps; several processes must know it.
        told_apart: by the name of a value of `identity`, what to say if it is another one than the run in the folder
            has; for values that say nothing to people, such as digests.
        own: how the names of tensors begin that each process has for itself in `extra_state`, such as what it remembers
            of its own batches; a checkpoint keeps these of every process.
        whole: the folder that is deleted to begin anew, where that is not the run's own: one that holds several runs,
            each of which goes on from the one before.
        autocast: a context in the run's number format, for passes through networks other than the model, such as a
            teacher; the loop sets it.
    """

    model: nn.Module
    skips_parameters: bool = False
    told_apart: Mapping[str, str] = MappingProxyType({})
    own: tuple[str, ...] = ()
    whole: Path | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Item]:
        """The batches of an epoch in order, e.g. arrays of row numbers.

        A function of the epoch (and of a seed of the task) only, so that any step can be found again. The first
        epoch's length tells the schedule how long the run will be.
        """

    @abstractmethod
    def load(self, item: Item, rng: np.random.Generator) -> Batch:
        """Make the batch of an item, in a background thread, a few batches ahead.

        All chance must come from `rng` (not from torch's own generators, which the steps use): it depends on the seed
        and on the place in the plan, never on which thread is faster. Tensors within tuples, lists, dicts and
        dataclasses are moved to the device afterwards.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """The losses of a batch.

        Args:
            model: the network as the loop wraps it (several processes, mixed precision): call this one, not
                `self.model`, and once for all views of a batch, as processes meet at each call. What it returns is
                float32 in mixed precision too.
            batch: what `load` made, on the device.
            step: updates made so far.
        """

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Metrics of `outcome()`, which is passed in evaluation mode; gradients are off. The main process asks."""
        return {}

    def prepare(self, device: torch.device) -> None:
        """Called once, when `model` has been moved to the device and before anything else; e.g. to move data there."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser: "params", and where they differ "lr_scale" and "weight_decay"."""
        return [{"params": [p for p in self.model.parameters() if p.requires_grad]}]

    def after_step(self, step: int) -> None:
        """Called after each update, in every process; e.g. for a moving average. `step` counts it already."""

    def outcome(self) -> nn.Module:
        """The network that is validated and kept: the model, or what `extra_state` holds of it, e.g. an average."""
        return self.model

    def extra_state(self) -> dict[str, Tensor]:
        """What else a continued run needs, e.g. averaged weights; the main process's is kept for all, but for `own`."""
        return {}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `extra_state` gave; the tensors are on the CPU."""
        if state:
            raise ValueError(f"{type(self).__name__} has no extra state; the checkpoint holds {', '.join(state)}")

    def describe(self) -> dict[str, Any]:
        """What must be equal for a run to be continued, as JSON: data, architecture, options of the loss."""
        return {}
