"""Files and folders that one process works on and others leave alone.

A claim is the lock of a file. The system gives it back when its process ends, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # Windows has other locks: there all is as if nobody else were at work
    fcntl = None  # type: ignore[assignment]


@contextmanager
def claimed(target: Path) -> Iterator[bool]:
    """Claims a file or a folder until the block ends, by a hidden file beside it.

    Args:
        target: what is claimed; it need not be there.

    Yields:
        Whether it is claimed now; False: another process has it.
    """
    path = claim_of(target)
    file = _take(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            file.close()


def claim_of(target: Path) -> Path:
    """The hidden file that stands for a claim."""
    return target.with_name(f".{target.name}.claim")


def _take(path: Path) -> TextIO | None:
    """The open file with its lock; None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a")
        try:
            if fcntl is not None:
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
