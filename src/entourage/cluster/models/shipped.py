"""The networks that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

import entourage

WEIGHTS = Path(entourage.__file__).parent / "weights"
PREFIX = "cluster-"


def find_weights(source: str | Path) -> Path:
    """The file of a network: that of a name that comes with the package, or itself.

    A file in the current folder may be called like a network of the package: `./points`, or a Path, names the file.

    Raises:
        ValueError: there is neither such a name nor such a file.
    """
    if isinstance(source, str) and source in shipped_networks():
        return WEIGHTS / f"{PREFIX}{source}.safetensors"
    if Path(source).is_file():
        return Path(source)
    names = ", ".join(shipped_networks()) or "none"
    raise ValueError(f"model {str(source)!r} is no file; expected one, or one of: {names}")


def shipped_networks() -> list[str]:
    """Names of the networks that come with the package."""
    return sorted(file.stem.removeprefix(PREFIX) for file in WEIGHTS.glob(f"{PREFIX}*.safetensors"))
