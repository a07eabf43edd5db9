"""Validation of items: arrays or tensors of numbers, points or images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

MAX_FLOAT64 = 1e300  # largest coordinate in double precision, so that sums are finite, too


def validate_items(X: ArrayLike | Tensor, shape: tuple[int, ...], dtype: torch.dtype, *, minimum: int = 2) -> Tensor:
    """Convert items to a tensor of finite numbers on the CPU.

    Args:
        X: array or tensor of real numbers, shape (n, *shape).
        shape: shape of one item.
        dtype: type of the result.
        minimum: smallest number of items, 1 or 2.

    Returns:
        Items, shape (n, *shape).

    Raises:
        ValueError: the items are not real numbers, have another shape, are fewer than `minimum`, or are not finite.
    """
    items = _to_tensor(X).to(dtype)
    if items.ndim != 1 + len(shape):
        raise ValueError(f"X has shape {tuple(items.shape)}; expected (items, {', '.join(map(str, shape))})")
    if len(shape) == 1 and items.shape[1] != shape[0]:
        raise ValueError(f"X has {items.shape[1]} columns; expected {shape[0]}, as in training")
    if tuple(items.shape[1:]) != shape:
        raise ValueError(f"X has items of shape {tuple(items.shape[1:])}; expected {shape}, as in training")
    if len(items) < minimum:
        number = "two" if minimum == 2 else "one"
        raise ValueError(f"X has {'one item' if len(items) else 'no items'}; expected {number} or more")
    max_value = MAX_FLOAT64 if dtype == torch.float64 else torch.finfo(dtype).max
    fits = items.abs() <= max_value  # False for NaN
    if not bool(fits.all()):
        row = int((~fits).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"X has a value in row {row} that is not finite; expected numbers up to {max_value:.2g}")
    return items


def _to_tensor(X: ArrayLike | Tensor) -> Tensor:
    """Convert an array or tensor of real numbers to a tensor on the CPU; raise ValueError for anything else."""
    if isinstance(X, Tensor):
        if X.is_complex():
            raise ValueError("X contains complex numbers; expected real numbers")
        return X.detach().cpu()
    if sparse.issparse(X):
        raise ValueError("X is a sparse matrix; expected a dense array, such as X.toarray()")
    try:
        array = np.asarray(X)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:  # rows of different lengths, or not numbers
        raise ValueError("X cannot be converted to an array; expected rows of numbers, all of one length") from error
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(array.dtype.kind, f"values of type {array.dtype}")
        raise ValueError(f"X contains {kind}; expected real numbers")
    return torch.from_numpy(array.astype(np.float64))
