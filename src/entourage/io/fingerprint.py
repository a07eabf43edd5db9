"""Digests of arrays, tensors and options, by which runs, caches and indices recognise their inputs."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def fingerprint(*values: Tensor | NDArray[Any] | bytes | str, size: int = 8) -> str:
    """Return a digest of arrays, tensors, bytes and strings.

    Types, shapes and order of the values are hashed, too, so that different sequences never pass equal bytes to the
    hash. A tensor and an array of the same type, shape and values have the same digest, on any device and in any memory
    order.

    Args:
        values: the values.
        size: bytes of the digest.

    Returns:
        2 * `size` hexadecimal digits. Costs one pass over the values.

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


def digest(*values: Tensor) -> str:
    """Return a digest of the types, shapes and values of tensors, as stored in the notes of shipped cluster networks.

    Unlike the digests of `fingerprint`, these must never change. Costs one pass over the tensors.
    """
    hasher = hashlib.blake2b(digest_size=8)
    for value in values:
        hasher.update(f"{value.dtype} {tuple(value.shape)}".encode())
        hasher.update(value.detach().cpu().flatten().view(torch.uint8).numpy().data)  # NumPy lacks bfloat16
    return hasher.hexdigest()


def transform_config(transform: object) -> Any:
    """Return the name and options of a transform as JSON types, equal in every process.

    Args:
        transform: a function, a dataclass instance, a sequence of these, or a value that JSON can represent.
    """
    if transform is None or isinstance(transform, (bool, int, float, str)):
        return transform
    if isinstance(transform, (tuple, list)):
        return [transform_config(item) for item in transform]
    name = getattr(transform, "__qualname__", type(transform).__qualname__)
    if is_dataclass(transform):
        options = {field.name: transform_config(getattr(transform, field.name)) for field in fields(transform)}
        return {"name": name, **options}
    return name
