"""Progress, shown by the main process only: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS = "ENTOURAGE_PROGRESS_SECONDS"
_DEFAULT_SECONDS = 10.0

quiet = False  # the command line sets these two for the command that runs
verbose = False


def is_main_process() -> bool:
    """Return whether this is the process of rank 0 under `torchrun` or `accelerate launch`, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Return the number of processes that `torchrun` or `accelerate launch` started; 1 for a single process."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_shown(show: bool | None) -> bool:
    """Return `show`; if it is None, return whether this is the main process and stderr is a terminal."""
    return is_main_process() and sys.stderr.isatty() and not quiet if show is None else show


def line_interval() -> float:
    """Return the seconds between progress lines, from ENTOURAGE_PROGRESS_SECONDS; 0: no lines."""
    try:
        return max(0.0, float(os.environ.get(_SECONDS, _DEFAULT_SECONDS)))
    except ValueError:
        return _DEFAULT_SECONDS


@contextmanager
def progress_lines(title: str, describe: Callable[[], str], show: bool | None = None) -> Iterator[None]:
    """Print a line on stderr every ten seconds while the block runs, where stderr is no terminal.

    Args:
        title: description of the work.
        describe: the state of the work, such as "12 of 40".
        show: None: lines are printed where no bar is shown, and not otherwise.
    """
    if show is not None or quiet or not is_main_process() or sys.stderr.isatty():
        yield
        return
    stream, interval, start, ended = sys.stderr, line_interval(), time.monotonic(), threading.Event()

    def print_lines() -> None:
        while not ended.wait(interval):
            seconds = time.monotonic() - start
            state = describe()
            stream.write(f"entourage: {title}: {state}{', ' if state else ''}{seconds:.0f} s\n")
            stream.flush()

    thread = threading.Thread(target=print_lines, name="entourage-progress", daemon=True)
    if interval:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if interval:
            thread.join()
        if verbose:
            stream.write(f"entourage: {title}: {time.monotonic() - start:.1f} s\n")


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show the progress on stderr while the block runs: a bar on a terminal, otherwise lines.

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
        completed = 0

        def advance(steps: int) -> None:
            nonlocal completed
            completed += steps
            progress.advance(task, steps)

        with progress_lines(title, lambda: f"{completed} of {total}", show):
            yield advance


@contextmanager
def status(title: str, show: bool | None = None) -> Iterator[None]:
    """Show a spinner or lines on stderr while the block runs, for work of unknown length; for `show` see `is_shown`."""
    if is_shown(show):
        with Console(stderr=True, force_terminal=True).status(title):
            yield
    else:
        with progress_lines(title, lambda: "", show):
            yield
