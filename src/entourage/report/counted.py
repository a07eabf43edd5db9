"""Numbers of things as they are said."""

from __future__ import annotations


def counted(number: int, name: str) -> str:
    """The number with what it counts: counted(1, "clusters") is "1 cluster", counted(1, "classes") is "1 class"."""
    one = name.removesuffix("es" if name.endswith("sses") else "s")
    return f"{number} {one if number == 1 else name}"
