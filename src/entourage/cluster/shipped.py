"""The networks that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

WEIGHTS = Path(__file__).parent.parent / "weights"
PREFIX = "cluster-"


def find_weights(source: str | Path) -> Path:
    """The file of a network: itself, or that of a name that comes with the package.

    Raises:
        ValueError: there is neither such a file nor such a name.
    """
    path, shipped = Path(source), WEIGHTS / f"{PREFIX}{source}.safetensors"
    for file in (path, shipped):
        if file.is_file():
            return file
    names = ", ".join(shipped_networks()) or "none"
    raise ValueError(f"model {str(source)!r} is no file; expected one, or one of: {names}")


def shipped_networks() -> list[str]:
    """Names of the networks that come with the package."""
    return sorted(file.stem.removeprefix(PREFIX) for file in WEIGHTS.glob(f"{PREFIX}*.safetensors"))
