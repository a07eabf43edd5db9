"""Options that are one of a few words."""

from __future__ import annotations

from typing import get_args


def check_choice(name: str, value: str, choices: object) -> None:
    """Raises a ValueError that lists the words if the value is none of those of a `Literal`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(get_args(choices))}")
