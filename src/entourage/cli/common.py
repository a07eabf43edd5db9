"""Options, exit codes and messages that all commands share."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

MAX_SEED = 2**31  # every random generator in use accepts seeds up to here
SKIPPED_EXIT_CODE = 1  # the command succeeded, but some inputs could not be read
STOPPED_EXIT_CODE = 130  # 128 plus the number of SIGINT, as in a shell

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed.")]
OptionalSeed = Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="Random seed.", show_default="0")]


def report_skipped(skipped: Iterable[tuple[str | Path, str]]) -> None:
    """Print one line for each skipped input, and exit with code 1 if there is any.

    Args:
        skipped: names of the inputs, and the reasons.

    Raises:
        typer.Exit: something was skipped.
    """
    items = list(skipped)
    for item, reason in items:
        typer.echo(f"entourage: skipped {item}: {reason}", err=True)
    if items:
        raise typer.Exit(SKIPPED_EXIT_CODE)


def skipped_items(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and reasons of the items that a summary lists as skipped."""
    return [(entry["item"], entry["reason"]) for entry in summary["skipped"]]


def to_json(value: Any) -> str:
    """Return a result as JSON, as `--json` prints it; bytes of file names that are not UTF-8 are escaped."""
    return json.dumps(value, indent=2, default=operator.index)


class StoppedError(Exception):
    """Raised by a command that was interrupted and resumes when it is repeated."""


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
