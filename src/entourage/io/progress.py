"""Progress bars, shown by the main process only and only on a terminal."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def is_main_process() -> bool:
    """Return whether this is the process of rank 0 under `torchrun` or `accelerate launch`, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Return the number of processes that `torchrun` or `accelerate launch` started; 1 for a single process."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_shown(show: bool | None) -> bool:
    """Return `show`; if it is None, return whether this is the main process and stderr is a terminal."""
    return is_main_process() and sys.stderr.isatty() if show is None else show


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr while the block runs.

    Args:
        title: description of the work.
        total: number of steps.
        show: see `is_shown`.

    Yields:
        A function to call with the number of steps completed since the last call.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown(show) or total == 0) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def status(title: str, show: bool | None = None) -> Iterator[None]:
    """Show a spinner on stderr while the block runs, for work of unknown length; for `show` see `is_shown`."""
    if is_shown(show):
        with Console(stderr=True, force_terminal=True).status(title):
            yield
    else:
        yield
