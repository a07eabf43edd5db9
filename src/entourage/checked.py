"""Arguments that several parts of `embed` take, and what is wrong with them in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.checks import check_count, is_whole


def check_whole(**numbers: object) -> None:
    """Refuse what is no whole number, Python's or NumPy's.

    Raises:
        ValueError: names the first.
    """
    for name, value in numbers.items():
        if not is_whole(value):
            raise ValueError(f"{name} is {value!r}; expected a whole number")


def check_sizes(**sizes: Any) -> None:
    """Refuse what is no whole number of 1 or more.

    Raises:
        ValueError: names the first.
    """
    for name, value in sizes.items():
        check_count(name, value, 1)


def class_codes(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The classes of labels, counted from 0 in sorted order, shape (n,).

    Raises:
        ValueError: labels are of kinds that cannot be sorted, such as names and None.
    """
    try:
        return np.unique(labels, return_inverse=True)[1].astype(np.int64, copy=False)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels.flat}))
        raise ValueError(f"labels are of kinds that cannot be compared: {kinds}; expected one kind") from error
