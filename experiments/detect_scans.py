"""Counts of symbols on real scans of printed piano music, page by page, next to the counts of their encodings.

python -m experiments.detect_scans                # pages to choose by, of Mozart (Breitkopf & Härtel, 1878)
python -m experiments.detect_scans --final        # pages for final figures, of Scarlatti (Ricordi, 1906 to 1913)

No detector was trained on these pages. A row is a page. The encodings have no positions, so that only counts can be
compared: a missed symbol and one too many cancel each other on a page, but not between pages. Counts of noteheads,
rests and accidentals are those of the data set's table, in which notes that share a head are one; stems and beams are
found in the MusicXML of the page.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree
from PIL import Image

from entourage.detect.detections import Detections
from entourage.detect.detector import Detector
from entourage.detect.options import InferenceOptions
from entourage.io.safe_formats import parse_xml
from experiments.command import run_command
from experiments.detect_rows import percent
from experiments.ledger import Ledger, ledger_of
from experiments.read_pages import SCANS
from experiments.tables import table

TITLE = "Detection: real scans of printed piano music"
THRESHOLD = 0.3  # that of `detect run`
KINDS: dict[str, Callable[[str], bool]] = {  # classes of each kind
    "noteheads": lambda name: name.startswith("notehead"),
    "stems": lambda name: name == "stem",
    "beams": lambda name: name == "beam",
    "rests": lambda name: name.startswith("rest"),
    "accidentals": lambda name: name.startswith("accidental"),
}


def main() -> None:
    """Measure the pages that are not measured yet and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--final", action="store_true", help="pages for final figures only")
    parser.add_argument("--pages", type=int, default=None, help="maximum number of pages")
    parser.add_argument("--model", default=None, help="a trained detector; the shipped one if left out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=None, help="folder of the rows, if not results/")
    options = parser.parse_args()
    path = Path(os.environ.get("ENTOURAGE_DATA", "")) / SCANS
    if not path.is_file():
        raise ValueError(f"ENTOURAGE_DATA: {path} does not exist; expected the real scans")
    book = ledger_of("detect_scans", options.results)
    detector = Detector.load(options.model, options.device, InferenceOptions(threshold=THRESHOLD))
    name = f"DWD, {options.model}" if options.model else "DWD, shipped"
    for page, make in list(scans(path, "scarlatti" if options.final else "mozart"))[: options.pages]:
        book.row(f"{name}: {page}", partial(measure, detector, make))
        book.write_table(TITLE, text)
    print(text(book))


def scans(path: Path, composer: str) -> Iterator[tuple[str, Callable[[], tuple[Any, dict[str, int]]]]]:
    """Iterate over names of pages, each with a function that returns the image and the counts of its encoding."""
    with zipfile.ZipFile(path) as archive:
        lines = csv.DictReader(io.StringIO(archive.read("manifest.csv").decode()))
        for line in sorted(lines, key=lambda line: line["page"]):
            if line["page"].startswith(composer):
                yield line["page"], partial(_read, path, line)


def _read(path: Path, line: Mapping[str, str]) -> tuple[Any, dict[str, int]]:
    with zipfile.ZipFile(path) as archive:
        with Image.open(io.BytesIO(archive.read(f"pages/{line['page']}.png"))) as image:
            gray = np.asarray(image.convert("L"), dtype=np.uint8)
        root = parse_xml(archive.read(f"truth/{line['page']}.musicxml"))
    listed = {kind: int(line[f"{kind}_truth"]) for kind in ("noteheads", "rests", "accidentals")}
    return gray, {**listed, "stems": count_stems(root), "beams": count_beams(root)}


def count_stems(root: etree._Element) -> int:
    """Return the number of stems of a MusicXML document: one for each chord or note shorter than a whole note."""
    notes = (n for n in root.iter("note") if n.find("chord") is None and n.find("rest") is None)
    return sum(
        n.findtext("type") not in ("whole", "breve", None) and n.findtext("stem") != "none" and _is_printed(n)
        for n in notes
    )


def count_beams(root: etree._Element) -> int:
    """Return the number of beams of a MusicXML document, those of every level and hooks included."""
    return sum(beam.text in ("begin", "forward hook", "backward hook") for beam in root.iter("beam"))


def _is_printed(note: etree._Element) -> bool:
    return bool(note.get("print-object") != "no")


def measure(detector: Detector, make: Callable[[], tuple[Any, dict[str, int]]]) -> dict[str, Any]:
    """Return the counts of a page: for each kind, that of the encoding and that of the detector."""
    image, truth = make()
    found = count_kinds(detector.detect(image))
    return {kind: [truth[kind], found[kind]] for kind in KINDS}


def count_kinds(detections: Detections) -> dict[str, int]:
    """Return the number of detections of each kind."""
    return {kind: sum(map(contains, detections.names)) for kind, contains in KINDS.items()}


def text(book: Ledger) -> str:
    """Return the tables: sums by detector and composer, and the counts of each page."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, row in book.rows.items():
        detector, _, page = key.partition(": ")
        groups.setdefault(f"{detector}, {page.partition('-')[0].capitalize()}", []).append(row)
    sums = [
        (name, str(len(rows)), kind, *_summary([row[kind] for row in rows]))
        for name, rows in groups.items()
        for kind in KINDS
    ]
    header = ("detector, pages of", "pages", "symbols", "encoding", "detected", "difference, %", "mean of pages, %")
    single = len({key.partition(": ")[0] for key in book.rows}) < 2
    pages = [
        (key.partition(": ")[2] if single else key, *(f"{row[kind][1]} / {row[kind][0]}" for kind in KINDS))
        for key, row in book.rows.items()
    ]
    caption = "Detected symbols / symbols of the encoding by page:"
    return "\n\n".join([table(header, sums), caption, table(("page", *KINDS), pages)])


def _summary(pairs: list[list[int]]) -> tuple[str, str, str, str]:
    """Return the sums, their difference in per cent, and the mean of the absolute differences of pages."""
    truth, found = np.array(pairs).T
    single = np.abs(found - truth) / np.maximum(truth, 1)
    return (
        str(truth.sum()),
        str(found.sum()),
        percent((found.sum() - truth.sum()) / max(truth.sum(), 1)),
        percent(single.mean()),
    )


if __name__ == "__main__":
    run_command(main)
