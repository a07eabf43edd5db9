"""What a run learns from, in short: another run in the same folder is known by it."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def digest(*values: Tensor) -> str:
    """A short name of tensors: other numbers, types or shapes have another. Costs one pass over them."""
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        found.update(f"{value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().flatten().view(torch.uint8).numpy().data)  # NumPy does not know every type
    return found.hexdigest()


def name_of(part: object) -> Any:
    """What a view or a disguise is called, settings included, in terms of JSON and alike in every process."""
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, (tuple, list)):
        return [name_of(one) for one in part]
    name = getattr(part, "__qualname__", type(part).__qualname__)
    if is_dataclass(part):
        return {"name": name, **{field.name: name_of(getattr(part, field.name)) for field in fields(part)}}
    return name
