"""Several processes on one experiment: each claims what it works on, so that nothing is done twice."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from entourage.runs.directory import lock_path, try_lock


class BusyError(Exception):
    """Another process is making what this needs; it may be there later."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for the lock of a file and has it until the block ends; the file is made if need be, and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Claims a file or a folder until the block ends.

    Raises:
        BusyError: another process has it.
    """
    with try_lock(target) as mine:
        if not mine:
            raise BusyError(f"{target} is claimed by another process")
        yield


def is_claimed(target: Path) -> bool:
    """Whether a process has claimed it just now."""
    if not lock_path(target).exists():
        return False
    with try_lock(target) as mine:  # a process that was killed leaves the file, but not its lock
        return not mine


def in_turn(jobs: Sequence[Callable[[], object]], pause: float = 1.0) -> None:
    """Does all jobs in order, and those that raised `BusyError` again, until none is left.

    Args:
        jobs: each looks for itself what of it is still to be done.
        pause: seconds to wait when all that are left are busy.
    """
    left = list(jobs)
    while left:
        busy = [job for job in left if not _done(job)]
        if len(busy) == len(left):
            time.sleep(pause)
        left = busy


def _done(job: Callable[[], object]) -> bool:
    try:
        job()
    except BusyError:
        return False
    return True
