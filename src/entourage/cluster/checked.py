"""Items as users give them to be clustered, and what is wrong with them in one line."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

LARGEST = 1e300  # of points in double precision: their sum is to be finite too


def checked_items(X: ArrayLike | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Items as a tensor of finite numbers on the CPU, shape (n, *shape).

    Args:
        X: an array or a tensor of real numbers.
        shape: of one item.
        dtype: of the result.

    Raises:
        ValueError: they are no numbers, have another shape, are fewer than two, or are not finite.
    """
    items = _as_numbers(X).to(dtype)
    if items.ndim != 1 + len(shape):
        raise ValueError(f"X has shape {tuple(items.shape)}; expected (items, {', '.join(map(str, shape))})")
    if len(shape) == 1 and items.shape[1] != shape[0]:
        raise ValueError(f"X has {items.shape[1]} columns; the network was trained for {shape[0]}")
    if tuple(items.shape[1:]) != shape:
        raise ValueError(f"X has items of shape {tuple(items.shape[1:])}; the network was trained for {shape}")
    if len(items) < 2:
        raise ValueError(f"X has {'one item' if len(items) else 'no items'}; expected two or more to cluster")
    most = LARGEST if dtype == torch.float64 else torch.finfo(dtype).max
    fits = items.abs() <= most  # neither does NaN
    if not bool(fits.all()):
        row = int((~fits).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"X has a value in row {row} that is not finite; expected numbers up to {most:.2g}")
    return items


def _as_numbers(X: ArrayLike | Tensor) -> Tensor:
    """An array or a tensor of real numbers as a tensor on the CPU; anything else is one line that says what it is."""
    if isinstance(X, Tensor):
        if X.is_complex():
            raise ValueError("X holds complex numbers; expected real ones")
        return X.detach().cpu()
    if sparse.issparse(X):
        raise ValueError("X is a sparse matrix; expected a dense array, such as X.toarray()")
    try:
        array = np.asarray(X)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:  # rows of several lengths, or no numbers
        raise ValueError("X is no array; expected rows of numbers, all of one length") from error
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(array.dtype.kind, f"values of type {array.dtype}")
        raise ValueError(f"X holds {kind}; expected real numbers")
    return torch.from_numpy(array.astype(np.float64))
