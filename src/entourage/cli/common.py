"""Options that verbs share, so that they are called and described alike.

How every verb ends that has left something out.

Commands that are stopped, by Ctrl-C or SIGINT, and what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

MOST_SEED = 2**31  # what every generator that is seeded takes

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of everything that is drawn.")]


SKIPPED_SOME = 1  # exit code when all went well but for what could not be read


def tell_skipped(skipped: Iterable[tuple[str | Path, str]]) -> None:
    """Say of each thing that was left out why, if there is any; the exit code then says so too.

    Args:
        skipped: names and reasons.

    Raises:
        typer.Exit: something was left out.
    """
    some = list(skipped)
    for item, reason in some:
        typer.echo(f"entourage: skipped {item}: {reason}", err=True)
    if some:
        raise typer.Exit(SKIPPED_SOME)


def skipped_in(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and reasons of what a summary lists as skipped."""
    return [(one["item"], one["reason"]) for one in summary["skipped"]]


STOPPED = 130  # exit code: 128 and the number of SIGINT, as in a shell


class StoppedError(Exception):
    """A command was stopped that goes on where it was when it is given again."""


@contextmanager
def resumable(when: bool = True) -> Iterator[None]:
    """Whatever is stopped within the block, or within the function that this decorates, can be gone on with.

    Args:
        when: whether it can; otherwise being stopped is left as it is.

    Raises:
        StoppedError: it was stopped.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if when:
            raise StoppedError from error
        raise
