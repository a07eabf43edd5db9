"""Fingerprints: short digests by which runs, caches and indices recognise their inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def fingerprint(*values: Tensor | NDArray[Any] | bytes | str, size: int = 8) -> str:
    """Return a digest of arrays, tensors, bytes and strings.

    The type, shape and order of the values count, so that no two sequences of values share a digest by construction. A
    tensor and an array of the same type, shape and values have the same digest, on any device and in any memory order.

    Args:
        values: the values.
        size: bytes of the digest.

    Returns:
        Hexadecimal digits, 2 size of them. Costs one pass over the values.

    Raises:
        TypeError: a value is an object of another type, or an array of objects.
    """
    digest = hashlib.blake2b(digest_size=size)
    for value in values:
        if isinstance(value, str | bytes):
            content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            digest.update(f"{type(value).__name__} {len(content)};".encode())
            digest.update(content)
        elif isinstance(value, Tensor):
            content_bytes = value.detach().cpu().contiguous().flatten().view(torch.uint8)  # NumPy lacks bfloat16
            digest.update(_header(value.dtype, value.shape))
            digest.update(content_bytes.numpy().data)
        else:
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise TypeError(f"value is {value!r:.100}; expected a tensor, a numeric array, bytes or a string")
            native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
            digest.update(_header(array.dtype, array.shape))
            digest.update(native.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _header(dtype: torch.dtype | np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")
    return f"{name} {tuple(shape)};".encode()


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
