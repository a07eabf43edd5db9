"""Time and memory per page of reading, in parts: symbols, layout, notes and rhythm, text, files.

    python -m benchmarks.read_speed                       # two threads of the CPU, and the GPU if there is one
    python -m benchmarks.read_speed --page page.png --methods rules search game

The page is composed and engraved at 1894 x 2668, unless --page is passed. Times are medians. Memory is the largest
resident memory of the process so far; on a CPU it is that of reading.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path
from typing import get_args

import torch

from benchmarks.detect_speed import composed_page, median
from benchmarks.machine import machine
from entourage.detect.preprocessing.reading import GrayImage, read_page
from entourage.extras import missing_packages
from entourage.read import ScoreReader
from entourage.read.layout.page import read_layout
from entourage.read.orientation import find_upright
from entourage.read.reader import join_pages
from entourage.read.rhythm.crossing import Method


def main() -> None:
    """Print the seconds of every part and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=None, help="image of a page")
    parser.add_argument("--methods", nargs="+", choices=get_args(Method), default=["search"], help="of rhythms")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(machine())
    try:
        page = composed_page() if options.page is None else read_page(options.page)
        for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            reader = ScoreReader.load(None, device)
            for method in options.methods:
                print(f"{device}, page of {page.shape[1]} x {page.shape[0]}, method {method}")
                for name, seconds in times(reader, page, method, options.repeats).items():
                    print(f"  {name:<34}{seconds:9.2f} s")
                print(f"  {'largest resident memory':<34}{peak_memory():9.2f} GB")
    except ValueError as error:  # an unreadable page or detector
        raise SystemExit(str(error)) from error


def times(reader: ScoreReader, page: GrayImage, method: Method, repeats: int) -> dict[str, float]:
    """Measure the seconds of each part of reading a page, and of the whole.

    Args:
        reader: the reader.
        page: grayscale, shape (h, w).
        method: how durations and voices are found.
        repeats: number of repetitions.

    Returns:
        Median seconds by name of the part.

    Raises:
        ValueError: the page has no notes.
    """
    device = reader.detector.device.type
    upright = find_upright(reader.detector, page)
    image = upright.prepared.image
    silent = ScoreReader(reader.detector, method)
    score = join_pages([silent.read_upright(upright)])
    if image is None or not score.notes:
        raise ValueError(f"page: has no notes ({score.message}); expected a page of music")
    found = {
        "symbols": median(lambda: find_upright(reader.detector, page), repeats, device),
        "layout": median(lambda: read_layout(image, upright.symbols), repeats, device),
        "layout, notes and rhythm": median(lambda: silent.read_upright(upright), repeats, device),
    }
    if reader.recognizer is not None and not missing_packages("text"):
        recognizer = reader.recognizer
        found["text"] = median(lambda: recognizer.read(image), repeats, device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def write() -> None:
            score.to_musicxml(folder / "page.musicxml")
            score.to_midi(folder / "page.mid")
            score.to_json(folder / "page.json")

        found["MusicXML, MIDI and JSON"] = median(write, repeats, device)
    found["page to score"] = median(lambda: reader.read(page), repeats, device)
    return found


def peak_memory() -> float:
    """Return the largest resident memory of the process in gigabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux


if __name__ == "__main__":
    main()
