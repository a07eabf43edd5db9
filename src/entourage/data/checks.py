"""Numbers that options hold: whether they are some, refused in one line that names them.

On the lowest floor, so that a room whose options are read does not have to load the training loop.
"""

from __future__ import annotations

from numbers import Real
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value can be compared with numbers: a text cannot, and a truth value is a slip."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(name: str, value: object, least: int, more: str = "") -> None:
    """Refuse what is no whole number, or less than `least`, with a ValueError that names it.

    Args:
        name: what it is called.
        value: what it is.
        least: the least it may be.
        more: what else to say of what is expected, such as ", or 'auto'".
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; expected a whole number of {least} or more{more}")
