"""Locks and retries with which several processes share one experiment."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from entourage.runs.directory import lock_path, try_lock


class BusyError(Exception):
    """Another process is computing a required result; try again later."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock of a file and hold it until the block ends; the file is created if missing and is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Lock a file or a folder until the block ends, without waiting.

    Raises:
        BusyError: another process holds the lock.
    """
    with try_lock(target) as acquired:
        if not acquired:
            raise BusyError(f"{target}: locked by another process; expected no other process at work on it")
        yield


def is_locked(target: Path) -> bool:
    """Return whether a process holds the lock of a file or folder."""
    if not lock_path(target).exists():
        return False
    with try_lock(target) as acquired:  # a killed process leaves the lock file, but not its lock
        return not acquired


def run_until_done(jobs: Sequence[Callable[[], object]], pause: float = 1.0) -> None:
    """Run all jobs in order, and repeat those that raised `BusyError` until all are done.

    Args:
        jobs: functions that skip the part of their work that is already done.
        pause: seconds to wait when all remaining jobs are busy.
    """
    remaining = list(jobs)
    while remaining:
        busy = [job for job in remaining if not _done(job)]
        if len(busy) == len(remaining):
            time.sleep(pause)
        remaining = busy


def _done(job: Callable[[], object]) -> bool:
    try:
        job()
    except BusyError:
        return False
    return True
