"""The moving average of a network's weights, often better than the weights themselves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

_MODULE = "module."
_UPDATES = "updates"


class _Pairs(NamedTuple):
    """Tensors of the average and of the model side by side, and the marks by which they are known to be current."""

    marks: tuple[object, ...]
    floats: list[Tensor]
    float_values: list[Tensor]
    others: list[tuple[Tensor, Tensor]]


def _marks(*modules: nn.Module) -> tuple[object, ...]:
    """Where the first weight and the first buffer of each module lie: a module that was moved has others."""
    firsts = [next(tensors, None) for module in modules for tensors in (module.parameters(), module.buffers())]
    return tuple(None if tensor is None else (id(tensor), tensor.data_ptr()) for tensor in firsts)


class WeightAverage:
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
        self._pairs: _Pairs | None = None

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move towards the weights of `model`, on its device; costs one pass over the weights."""
        kept = min(self.decay, (1 + self.updates) / (10 + self.updates))
        pairs = self._find_pairs(model)
        if pairs.floats:
            torch._foreach_lerp_(pairs.floats, pairs.float_values, 1 - kept)
        for average, value in pairs.others:
            average.copy_(value)
        self.updates += 1

    def _find_pairs(self, model: nn.Module) -> _Pairs:
        """What is averaged, beside its average; remembered, as to find it takes longer than to average it."""
        if self._pairs is None or self._pairs.marks != _marks(self.module, model):
            current = [*model.parameters(), *model.buffers()]
            if current:
                self.module.to(current[0].device)
            every = list(zip([*self.module.parameters(), *self.module.buffers()], current, strict=True))
            floats = [(average, value.detach()) for average, value in every if average.is_floating_point()]
            others = [(average, value) for average, value in every if not average.is_floating_point()]
            averages, values = [average for average, _ in floats], [value for _, value in floats]
            self._pairs = _Pairs(_marks(self.module, model), averages, values, others)
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
