"""What is trained: a network, its data and its loss. The loop does the rest.

The moving average of a network's weights, often better than the weights themselves.

A task whose outcome is the moving average of its weights.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

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
        mismatch_messages: by the name of a value of the run's configuration, the text of the error if it differs from
            the stored one; for values that mean nothing to a reader, such as digests.
        per_process_state: prefixes of the names in `extra_state` whose tensors differ between processes; a checkpoint
            stores these of every process.
        root_dir: the folder to delete to start from scratch, if it is not the run directory itself: one that holds
            several runs, each of which continues from the one before.
        autocast: a context in the run's number format, for passes through networks other than the model, such as a
            teacher; the loop sets it.
    """

    model: nn.Module
    skips_parameters: bool = False
    mismatch_messages: Mapping[str, str] = MappingProxyType({})
    per_process_state: tuple[str, ...] = ()
    root_dir: Path | None = None
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
        """Metrics of `final_model()`, which is passed in evaluation mode; gradients are off. The main process asks."""
        return {}

    def prepare(self, device: torch.device) -> None:
        """Called once, when `model` has been moved to the device and before anything else; e.g. to move data there."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser: "params", and where they differ "lr_scale" and "weight_decay"."""
        return [{"params": [p for p in self.model.parameters() if p.requires_grad]}]

    def after_step(self, step: int) -> None:
        """Called after each update, in every process; e.g. for a moving average. `step` counts it already."""

    def final_model(self) -> nn.Module:
        """The network that is validated and kept: the model, or what `extra_state` holds of it, e.g. an average."""
        return self.model

    def extra_state(self) -> dict[str, Tensor]:
        """Return further tensors to store in a checkpoint, e.g. averaged weights; see `per_process_state`."""
        return {}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `extra_state` gave; the tensors are on the CPU."""
        if state:
            raise ValueError(f"{type(self).__name__} has no extra state; the checkpoint holds {', '.join(state)}")

    def config(self) -> dict[str, Any]:
        """What must be equal for a run to be continued, as JSON: data, architecture, options of the loss."""
        return {}


_MODULE = "module."
_UPDATES = "updates"


class _TensorPairs(NamedTuple):
    """Tensors of the average and of the model side by side, and the marks by which they are known to be current."""

    keys: tuple[object, ...]
    floats: list[Tensor]
    float_values: list[Tensor]
    others: list[tuple[Tensor, Tensor]]


def _storage_keys(*modules: nn.Module) -> tuple[object, ...]:
    """Where the first weight and the first buffer of each module lie: a module that was moved has others."""
    firsts = [next(tensors, None) for module in modules for tensors in (module.parameters(), module.buffers())]
    return tuple(None if tensor is None else (id(tensor), tensor.data_ptr()) for tensor in firsts)


class EMA:
    """An exponential moving average of a module's weights and buffers.

    Update t (from 0) keeps the share d_t = min(decay, (1 + t) / (10 + t)) of the average, so that the untrained
    weights it begins with are soon forgotten. Whole numbers (a batch norm's counter) are copied.

    Args:
        model: what is averaged; it is copied.
        decay: the share that is kept in the long run, in [0, 1).

    Attributes:
        module: the average, in evaluation mode.
        updates: how many updates it has seen.
    """

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay is {decay}; expected a number in [0, 1)")
        self.decay = decay
        self.updates = 0
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self._pairs: _TensorPairs | None = None

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move towards the weights of `model`, on its device; costs one pass over the weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        pairs = self._find_pairs(model)
        if pairs.floats:
            torch._foreach_lerp_(pairs.floats, pairs.float_values, 1 - decay)
        for average, value in pairs.others:
            average.copy_(value)
        self.updates += 1

    def _find_pairs(self, model: nn.Module) -> _TensorPairs:
        """What is averaged, beside its average; remembered, as to find it takes longer than to average it."""
        if self._pairs is None or self._pairs.keys != _storage_keys(self.module, model):
            current = [*model.parameters(), *model.buffers()]
            if current:
                self.module.to(current[0].device)
            every = list(zip([*self.module.parameters(), *self.module.buffers()], current, strict=True))
            floats = [(average, value.detach()) for average, value in every if average.is_floating_point()]
            others = [(average, value) for average, value in every if not average.is_floating_point()]
            averages, values = [average for average, _ in floats], [value for _, value in floats]
            self._pairs = _TensorPairs(_storage_keys(self.module, model), averages, values, others)
        return self._pairs

    def state(self) -> dict[str, Tensor]:
        """All that `load_state` needs, for `Task.extra_state`."""
        weights = {f"{_MODULE}{name}": value for name, value in self.module.state_dict().items()}
        return {**weights, _UPDATES: torch.tensor(self.updates)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        weights = {name.removeprefix(_MODULE): value for name, value in state.items() if name.startswith(_MODULE)}
        self.module.load_state_dict(weights)
        self.updates = int(state[_UPDATES])


_AVERAGE = "average."


class EMATask(Task[Item, Batch]):
    """A task that keeps an average of its weights beside them, if it is told to.

    The average follows every step, goes to the device with the model, is what is validated and kept, and is found
    again when a run continues. A subclass with an `after_step`, a `prepare` or an extra state of its own calls these.

    Args:
        model: the network that is trained.
        decay: the share of the average that an update keeps, see `EMA`; None or 0: there is no average, and
            the outcome is the model.

    Attributes:
        average: of the model's weights; None where there is none.
    """

    average: EMA | None

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.model = model
        self.average = EMA(model, decay) if decay else None

    def prepare(self, device: torch.device) -> None:
        """The average goes where the model is."""
        if self.average is not None:
            self.average.module.to(device)

    def after_step(self, step: int) -> None:
        """The average follows the weights."""
        if self.average is not None:
            self.average.update(self.model)

    def final_model(self) -> nn.Module:
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
        stored = {} if self.average is None else {name: v for name, v in state.items() if name.startswith(_AVERAGE)}
        super().load_extra_state({name: value for name, value in state.items() if name not in stored})
        if self.average is not None:
            self.average.load_state({name.removeprefix(_AVERAGE): value for name, value in stored.items()})
