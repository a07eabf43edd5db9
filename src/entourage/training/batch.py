"""Batches of any shape: tensors within tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from entourage.training.task import Batch


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """A batch of the same shape, with every tensor replaced by what the function makes of it.

    Args:
        function: from tensor to tensor.
        batch: tensors, and tuples, lists, mappings and dataclasses of them; anything else is left as it is.
    """
    result: Any = batch
    if isinstance(batch, Tensor):
        result = function(batch)
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        result = type(batch)(*(map_tensors(function, part) for part in batch))
    elif isinstance(batch, (tuple, list)):
        result = type(batch)(map_tensors(function, part) for part in batch)
    elif isinstance(batch, Mapping):
        result = {name: map_tensors(function, part) for name, part in batch.items()}
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init}
        result = dataclasses.replace(batch, **{name: map_tensors(function, part) for name, part in parts.items()})
    return result  # type: ignore[no-any-return]


def pin(batch: Batch) -> Batch:
    """The batch in memory from which a GPU copies by itself while the program goes on."""
    return map_tensors(lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor, batch)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device; what is there already is not copied."""
    return map_tensors(lambda t: t if t.device == device else t.to(device, non_blocking=True), batch)
