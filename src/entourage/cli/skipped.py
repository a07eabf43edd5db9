"""How every verb ends that has left something out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

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
