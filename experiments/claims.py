"""Several processes on one experiment: each claims what it works on, so that nothing is done twice.

A claim is the lock of a file. The system gives it back when its process ends, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


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
def claimed(target: Path) -> Iterator[bool]:
    """Claims a file or a folder until the block ends, by a hidden file beside it.

    Args:
        target: what is claimed; it need not be there.

    Yields:
        Whether it is claimed now; False: another process has it.
    """
    path = _claim_of(target)
    file = _take(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            file.close()


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Claims a file or a folder until the block ends.

    Raises:
        BusyError: another process has it.
    """
    with claimed(target) as mine:
        if not mine:
            raise BusyError(f"{target} is claimed by another process")
        yield


def is_claimed(target: Path) -> bool:
    """Whether a process has claimed it just now."""
    if not _claim_of(target).exists():
        return False
    with claimed(target) as mine:  # a process that was killed leaves the file, but not its lock
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


def _claim_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.claim")


def _take(path: Path) -> TextIO | None:
    """The open file with its lock; None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if _is_there(path, file):
            return file
        file.close()  # who had it removed it between the two calls: others would lock another file of that name


def _is_there(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
