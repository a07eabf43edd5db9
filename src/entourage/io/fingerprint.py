"""What a run learns from, in short: another run in the same folder is known by it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RaggedRows:
    """Rows of unequal length, known by the digest of the tensor that fills them up with zeros, but not by its memory.

    Attributes:
        values: of all rows, one row after the other, shape (m,).
        sizes: lengths of the rows, shape (rows,), m in all.
    """

    values: Tensor
    sizes: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """As if all rows were as long as the longest."""
        return len(self.sizes), int(self.sizes.max())

    def pieces(self) -> Iterator[Tensor]:
        """Each row, and the zeros that it lacks."""
        zeros = torch.zeros(self.shape[1], dtype=self.dtype)
        for row in torch.split(self.values.cpu(), self.sizes.tolist()):
            yield row
            yield zeros[len(row) :]


def digest(*values: Tensor | RaggedRows) -> str:
    """A short name of tensors: other numbers, types or shapes have another. Costs one pass over them."""
    hasher = hashlib.blake2b(digest_size=8)
    for value in values:
        hasher.update(f"{value.dtype} {tuple(value.shape)}".encode())
        for piece in value.pieces() if isinstance(value, RaggedRows) else (value,):
            hasher.update(piece.detach().cpu().flatten().view(torch.uint8).numpy().data)  # NumPy lacks some types
    return hasher.hexdigest()


def transform_config(transform: object) -> Any:
    """What a view or a disguise is called, settings included, in terms of JSON and alike in every process."""
    if transform is None or isinstance(transform, (bool, int, float, str)):
        return transform
    if isinstance(transform, (tuple, list)):
        return [transform_config(item) for item in transform]
    name = getattr(transform, "__qualname__", type(transform).__qualname__)
    if is_dataclass(transform):
        return {
            "name": name,
            **{field.name: transform_config(getattr(transform, field.name)) for field in fields(transform)},
        }
    return name
