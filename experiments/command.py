"""How every experiment is called, and how it tells what is wrong: in one line, as the command line does."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path


def run_command(main: Callable[[], None]) -> None:
    """Runs an experiment. Bad input, such as a missing data set, is one line and exit code 2.

    ENTOURAGE_DEBUG=1 shows where an error came from.
    """
    try:
        main()
    except (ValueError, OSError) as error:
        if os.environ.get("ENTOURAGE_DEBUG"):
            raise
        print(f"{Path(sys.argv[0]).stem}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def one_or_more(text: str) -> int:
    """A number of seeds, epochs or processes, for `argparse`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return int(text)
