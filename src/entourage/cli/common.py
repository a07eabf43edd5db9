"""Options and functions that all commands share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from entourage.cli.output import StoppedError, note, report, report_skipped

__all__ = [
    "MAX_SEED",
    "Device",
    "OptionalSeed",
    "Seed",
    "note",
    "report",
    "report_skipped",
    "resumable",
    "skipped_items",
]

MAX_SEED = 2**31  # every random generator in use accepts seeds up to here

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed.")]
OptionalSeed = Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="Random seed.", show_default="0")]


def skipped_items(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and reasons of the items that a summary lists as skipped."""
    return [(entry["item"], entry["reason"]) for entry in summary["skipped"]]


@contextmanager
def resumable(when: bool = True) -> Iterator[None]:
    """Mark a block, or the decorated function, as work that resumes when the command is repeated.

    Args:
        when: whether the work resumes; if False, `KeyboardInterrupt` passes unchanged.

    Raises:
        StoppedError: the block was interrupted.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if when:
            raise StoppedError from error
        raise
