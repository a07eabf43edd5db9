"""Scores, pages, symbols and failures of `entourage engrave` on an entire corpus.

    ENTOURAGE_DATA=... python -m benchmarks.engrave_corpus             # all Lieder
    python -m benchmarks.engrave_corpus --scores FOLDER

Pages are engraved in full size with their table of symbols, in a temporary folder.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

from benchmarks.engrave_scores import default_source
from benchmarks.machine import machine
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.options import EngraveOptions


def main() -> None:
    """Print the counts, the pages per second, and every failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, default=default_source())
    parser.add_argument("--workers", type=int, default=0, help="Processes; 0 for one per core.")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pages"
        start = time.perf_counter()
        counts = engrave(EngraveOptions(out, (arguments.scores,), formats=("parquet",), workers=arguments.workers))[
            "counts"
        ]
        seconds = time.perf_counter() - start
        with (out / "failures.csv").open(encoding="utf-8", newline="") as file:
            failures = list(csv.DictReader(file))
    print(f"{counts['scores']} scores, {counts['pages']} pages, {counts['symbols']} symbols; {len(failures)} failed")
    print(f"{counts['pages'] / seconds:.2f} pages/s")
    for row in failures:
        print("  " + ", ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
