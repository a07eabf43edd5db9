"""A progress bar that stays out of the way of pipes and log files."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block runs.

    Args:
        title: what is being done.
        total: how many steps there are.
        show: yes, no, or None for "only if stderr is a terminal".

    Yields:
        A function to call with the number of steps just done.
    """
    visible = sys.stderr.isatty() if show is None else show
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not visible or total == 0) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def status(title: str, show: bool | None = None) -> Iterator[None]:
    """Show on stderr, while the block runs, that something of unknown length is under way; `show` as above."""
    if sys.stderr.isatty() if show is None else show:
        with Console(stderr=True, force_terminal=True).status(title):
            yield
    else:
        yield
