"""Numbers of things as they are said."""

from __future__ import annotations


def counted(number: int, name: str) -> str:
    """The number with what it counts: counted(1, "clusters") is "1 cluster"."""
    return f"{number} {name.removesuffix('s') if number == 1 else name}"
