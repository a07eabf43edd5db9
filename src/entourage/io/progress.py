"""A progress bar that stays out of the way of pipes, log files and other processes."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def is_main_process() -> bool:
    """Whether this process speaks and writes for all that `torchrun` or `accelerate launch` started; also if alone."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """How many processes `torchrun` or `accelerate launch` started; 1 for one that was started alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_shown(show: bool | None) -> bool:
    """What `show` means: yes, no, or None for "by the main process, if stderr is a terminal"."""
    return is_main_process() and sys.stderr.isatty() if show is None else show


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block runs.

    Args:
        title: what is being done.
        total: how many steps there are.
        show: see `is_shown`.

    Yields:
        A function to call with the number of steps just done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown(show) or total == 0) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def status(title: str, show: bool | None = None) -> Iterator[None]:
    """Show on stderr, while the block runs, that something of unknown length is under way; `show` as above."""
    if is_shown(show):
        with Console(stderr=True, force_terminal=True).status(title):
            yield
    else:
        yield
