"""Checks of option values: numbers, counts, choices and presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeGuard, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python or NumPy; booleans and strings are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or NumPy; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(name: str, value: object, minimum: int, alternative: str = "") -> int:
    """Check that a value is an integer of at least `minimum`.

    Args:
        name: name of the option, for the message.
        value: the value.
        minimum: smallest valid value.
        alternative: appended to the expectation in the message, such as ", or 'auto'".

    Returns:
        The value as a Python int, which `json.dumps` accepts, unlike NumPy's integers.

    Raises:
        ValueError: the value is not an integer or is less than `minimum`.
    """
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name} is {value!r}; expected a whole number of {minimum} or more{alternative}")
    return int(value)


def validate_counts(options: object, minimum: int, *names: str, alternative: str = "") -> None:
    """Check fields of a dataclass as `check_count` does and convert them to Python ints.

    Args:
        options: a dataclass instance, frozen or not; called from its `__post_init__`.
        minimum: smallest valid value.
        names: names of the fields.
        alternative: appended to the expectation in the message.

    Raises:
        ValueError: a field is not an integer or is less than `minimum`.
    """
    for name in names:
        object.__setattr__(options, name, check_count(name, getattr(options, name), minimum, alternative))


def check_choice(name: str, value: object, choices: object) -> None:
    """Check that a value is one of a fixed set of names.

    Args:
        name: name of the option, for the message.
        value: the value.
        choices: a `Literal` type, or the names.

    Raises:
        ValueError: the value is not a choice; the message lists the choices.
    """
    names = get_args(choices) or tuple(choices if isinstance(choices, Iterable) else ())
    if value not in names:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(names)}")


def preset(table: Mapping[str, T], name: str, kind: str = "preset") -> T:
    """Return the entry of a table of presets with a given name.

    Args:
        table: entries by name.
        name: name of the entry.
        kind: description of an entry in the message.

    Raises:
        ValueError: the name is unknown; the message lists the valid ones.
    """
    if name not in table:
        raise ValueError(f"{kind} {name!r} is unknown; expected one of {', '.join(table)}")
    return table[name]


def check_integers(**values: object) -> None:
    """Check that all values are integers of Python or NumPy.

    Raises:
        ValueError: a value is not an integer; the message names the first such argument.
    """
    for name, value in values.items():
        if not is_integer(value):
            raise ValueError(f"{name} is {value!r}; expected a whole number")


def check_sizes(**sizes: Any) -> None:
    """Check that all values are integers of 1 or more.

    Raises:
        ValueError: a value is not an integer or is less than 1; the message names the first such argument.
    """
    for name, value in sizes.items():
        check_count(name, value, 1)


def class_codes(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Encode labels as integers from 0 in sorted order, as scikit-learn's `LabelEncoder` does.

    Args:
        labels: labels of one type, shape (n,).

    Returns:
        Codes, shape (n,).

    Raises:
        ValueError: the labels are of types that cannot be compared, such as str and None.
    """
    try:
        return np.unique(labels, return_inverse=True)[1].astype(np.int64, copy=False)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels.flat}))
        raise ValueError(f"labels are of kinds that cannot be compared: {kinds}; expected one kind") from error
