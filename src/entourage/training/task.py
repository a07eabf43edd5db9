"""Base class of training tasks, and exponential moving averages of weights."""

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

_MODULE, _UPDATES, _AVERAGE = "module.", "updates", "average."

Losses = Mapping[str, Tensor]
"""Scalar losses by name, the same names at every step: "loss" is minimised, the others are only logged."""


class Task(ABC, Generic[Item, Batch]):
    """Base class of training tasks: a network, its data and its loss.

    Attributes:
        model: the network. It must contain all learnt parameters, also those of the loss (proxies, temperatures): only
            its weights are synchronised between processes and stored in checkpoints. A submodule that must stay in
            evaluation mode overrides `train`.
        skips_parameters: whether some steps leave parameters unused, which distributed training has to consider.
        mismatch_messages: by the name of a value of the run's configuration, the text of the error if it differs from
            the stored one; for values without a meaning for users, such as digests.
        per_process_state: prefixes of the names in `extra_state` whose tensors differ between processes; a checkpoint
            stores these tensors of every process.
        root_dir: the folder to delete to start from scratch, if it contains several runs that build on each other;
            None: the run directory.
        autocast: autocast context of the run, for forward passes of networks other than `model`, such as a mean
            teacher; set by the loop.
    """

    model: nn.Module
    skips_parameters: bool = False
    mismatch_messages: Mapping[str, str] = MappingProxyType({})
    per_process_state: tuple[str, ...] = ()
    root_dir: Path | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Item]:
        """Return the items of an epoch, one per batch, such as arrays of indices.

        The plan may depend only on the epoch and on a seed of the task, so that a run can be resumed at any step. The
        schedule of the learning rate assumes that all epochs are as long as the first.
        """

    @abstractmethod
    def load(self, item: Item, rng: np.random.Generator) -> Batch:
        """Load the batch of an item, in a background thread, a few batches ahead.

        Args:
            item: an element of the plan.
            rng: generator for all random numbers of the batch, seeded by the position in the plan. Torch's global
                generators must not be used here, because the order of the threads is not fixed.

        Returns:
            Tensors in nested tuples, lists, dicts and dataclasses; the loop moves them to the device.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Compute the losses of a batch.

        Args:
            model: `self.model`, wrapped for distributed training and mixed precision. Call this wrapper, and only once
                for all views of a batch, because processes synchronise at each call. Its outputs are float32 in mixed
                precision, too.
            batch: the result of `load`, on the device.
            step: number of updates so far.

        Returns:
            "loss", which is minimised, and further losses for the log.
        """

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Compute metrics of `final_model()`, in evaluation mode and without gradients; only in the main process."""
        return {}

    def prepare(self, device: torch.device) -> None:
        """Prepare the training; called once, after `model` was moved to the device, e.g. to move data there."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return groups for the optimiser: "params" and optionally "lr_scale" and "weight_decay"."""
        return [{"params": [p for p in self.model.parameters() if p.requires_grad]}]

    def after_step(self, step: int) -> None:
        """Hook after each update, in every process, e.g. for a moving average; `step` includes the update."""

    def final_model(self) -> nn.Module:
        """Return the network that is validated and saved: `model`, or an average of its weights, for example."""
        return self.model

    def extra_state(self) -> dict[str, Tensor]:
        """Return further tensors to store in a checkpoint, e.g. averaged weights; see `per_process_state`."""
        return {}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `extra_state` returned; they are on the CPU."""
        if state:
            raise ValueError(f"checkpoint: extra state {', '.join(state)}; expected none for {type(self).__name__}")

    def config(self) -> dict[str, Any]:
        """Return JSON values that must not change when a run is resumed: data, architecture, options of the loss."""
        return {}


class _TensorPairs(NamedTuple):
    """Pairs of tensors of the average and of the model, and `_storage_keys` of both when they were found."""

    keys: tuple[object, ...]
    floats: list[Tensor]
    float_values: list[Tensor]
    others: list[tuple[Tensor, Tensor]]


def _storage_keys(*modules: nn.Module) -> tuple[object, ...]:
    """Return the addresses of the first weight and the first buffer of each module; moving a module changes them."""
    firsts = [next(tensors, None) for module in modules for tensors in (module.parameters(), module.buffers())]
    return tuple(None if tensor is None else (id(tensor), tensor.data_ptr()) for tensor in firsts)


class EMA:
    """Exponential moving average of the weights and buffers of a module.

    Update t (from 0) uses the decay d_t = min(decay, (1 + t) / (10 + t)), so that the initial weights soon lose their
    influence. Integer buffers, such as the counter of batch normalisation, are copied.

    Args:
        model: the module; it is copied.
        decay: decay in the long run, in [0, 1).

    Attributes:
        module: a copy of the module with the averaged weights, in evaluation mode.
        updates: number of updates.
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
        """Update the average with the weights of `model`, on its device. Costs one pass over the weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        pairs = self._find_pairs(model)
        if pairs.floats:
            torch._foreach_lerp_(pairs.floats, pairs.float_values, 1 - decay)
        for average, value in pairs.others:
            average.copy_(value)
        self.updates += 1

    def _find_pairs(self, model: nn.Module) -> _TensorPairs:
        """Return pairs of tensors of the average and of `model`, cached because finding them takes long."""
        if self._pairs is None or self._pairs.keys != _storage_keys(self.module, model):
            current = [*model.parameters(), *model.buffers()]
            if current:
                self.module.to(current[0].device)
            pairs = list(zip([*self.module.parameters(), *self.module.buffers()], current, strict=True))
            floats = [(average, value.detach()) for average, value in pairs if average.is_floating_point()]
            others = [(average, value) for average, value in pairs if not average.is_floating_point()]
            averages, values = [average for average, _ in floats], [value for _, value in floats]
            self._pairs = _TensorPairs(_storage_keys(self.module, model), averages, values, others)
        return self._pairs

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the average, for `Task.extra_state`; `load_state` restores them."""
        weights = {f"{_MODULE}{name}": value for name, value in self.module.state_dict().items()}
        return {**weights, _UPDATES: torch.tensor(self.updates)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the average from the result of `state`."""
        weights = {name.removeprefix(_MODULE): value for name, value in state.items() if name.startswith(_MODULE)}
        self.module.load_state_dict(weights)
        self.updates = int(state[_UPDATES])


class EMATask(Task[Item, Batch]):
    """Task whose final model is an exponential moving average of the weights.

    The average is updated after every step and stored in checkpoints. Subclasses that override `prepare`, `after_step`,
    `extra_state` or `load_extra_state` call the methods of this class.

    Args:
        model: the network that is trained.
        decay: see `EMA`; None or 0: no average, the final model is `model`.

    Attributes:
        average: the average of the weights, or None.
    """

    average: EMA | None

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.model = model
        self.average = EMA(model, decay) if decay else None

    def prepare(self, device: torch.device) -> None:
        """Move the running average of the weights to the device."""
        if self.average is not None:
            self.average.module.to(device)

    def after_step(self, step: int) -> None:
        """Update the running average of the weights."""
        if self.average is not None:
            self.average.update(self.model)

    def final_model(self) -> nn.Module:
        """Return the network with averaged weights, or `model` if there is no average."""
        return self.model if self.average is None else self.average.module

    def extra_state(self) -> dict[str, Tensor]:
        """Return the tensors of the running average, with the prefix "average."."""
        return {} if self.average is None else {f"{_AVERAGE}{k}": value for k, value in self.average.state().items()}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the running average of the weights.

        Raises:
            ValueError: the state contains other tensors, or an average that this task lacks.
        """
        stored = {} if self.average is None else {name: v for name, v in state.items() if name.startswith(_AVERAGE)}
        super().load_extra_state({name: value for name, value in state.items() if name not in stored})
        if self.average is not None:
            self.average.load_state({name.removeprefix(_AVERAGE): value for name, value in stored.items()})
