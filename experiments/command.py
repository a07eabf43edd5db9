"""Entry point of the experiments: errors in the input are reported in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from experiments.renamed import RENAMED


def run_command(main: Callable[[], None]) -> None:
    """Run an experiment; bad input, such as a missing data set, is reported in one line with exit code 2.

    Options in a former spelling, as in the commands of results/*.json, are accepted. ENTOURAGE_DEBUG=1 shows the
    traceback of an error.
    """
    sys.argv[1:] = [RENAMED.get(word, word) if word.startswith("--") else word for word in sys.argv[1:]]
    try:
        main()
    except (ValueError, OSError) as error:
        if os.environ.get("ENTOURAGE_DEBUG"):
            raise
        print(f"{Path(sys.argv[0]).stem}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def one_or_more(text: str) -> int:
    """Parse a number of seeds, epochs or processes for `argparse`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return int(text)
