"""Commands that are stopped, by Ctrl-C or SIGINT, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
