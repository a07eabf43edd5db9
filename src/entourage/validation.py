"""Numbers that options hold: whether they are some, refused in one line that names them.

On the lowest floor, so that a room whose options are read does not have to load the training loop.

Options that are one of a few words.

Arguments that several parts of `embed` take, and what is wrong with them in one line.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value can be compared with numbers: a text cannot, and a truth value is a slip."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, Python's or NumPy's; a truth value is a slip."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(name: str, value: object, least: int, more: str = "") -> int:
    """Refuse what is no whole number, or less than `least`, with a ValueError that names it.

    Args:
        name: what it is called.
        value: what it is.
        least: the least it may be.
        more: what else to say of what is expected, such as ", or 'auto'".

    Returns:
        The value as a number of Python's: NumPy's are no JSON.
    """
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} is {value!r}; expected a whole number of {least} or more{more}")
    return int(value)


def validate_counts(options: object, least: int, *names: str, more: str = "") -> None:
    """Check counts that frozen options hold, as `check_count` does, and let them hold Python's numbers.

    Args:
        options: a dataclass, frozen or not, that is being made.
        least: the least that each may be.
        names: of the fields.
        more: what else to say of what is expected.
    """
    for name in names:
        object.__setattr__(options, name, check_count(name, getattr(options, name), least, more))


def check_choice(name: str, value: str, choices: object) -> None:
    """Raises a ValueError that lists the words if the value is none of those of a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(get_args(choices))}")


def check_whole(**numbers: object) -> None:
    """Refuse what is no whole number, Python's or NumPy's.

    Raises:
        ValueError: names the first.
    """
    for name, value in numbers.items():
        if not is_integer(value):
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
