"""The last table of chapter 6: synthetic pages, degraded pages and handwriting, beside detectors of torchvision.

python -m experiments.detect_deepscores --train pages composed --test clean=pages scan=scans photo=photos --minutes 8

Detectors are kept in --runs, rows in results/detect_deepscores.json: a command that was stopped, or that is given more
sets or rivals, goes on from there. Without --train the shipped detector is measured, and no rival.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from entourage.detect.classes import DETECTOR_CLASSES
from entourage.detect.detector import Detector, find_detector
from entourage.detect.evaluate import DetectsPages, Judged, Seen, detect_pages, evaluate, judge
from entourage.detect.recipe import Recipe
from entourage.detect.sheets import pack_sheets
from entourage.detect.teach import TrainJob
from entourage.detect.truth import TruthPage, read_truth, spread_over
from experiments.claims import alone, in_turn
from experiments.command import run_command
from experiments.detect_handwriting import handwritten_table
from experiments.detect_rival_models import RIVALS
from experiments.detect_rivals import RivalDetector, train_rival
from experiments.detect_rows import arguments, ledger, packed, percent, recipe_of, scores, sets_of, trained
from experiments.ledger import Ledger
from experiments.tables import table

DWD = "detect_deepscores-dwd"  # the folder of its run
HANDWRITTEN = "MUSCIMA++, own"  # pages and classes
LISTS: tuple[Judged, ...] = ("v1", "extended")
PUBLISHED = {
    "thesis, DWD": ("41.4", "47.3", "19.9"),
    "thesis, U-Net": ("24.8", "-", "16.6"),
    "thesis, Faster R-CNN": ("19.6", "-", "3.9"),
    "thesis, RetinaNet": ("9.8", "-", "7.7"),
}


def main() -> None:
    """Trains, measures, and writes the table."""
    parser = arguments("Detection on synthetic, degraded and handwritten pages", minutes=8)
    parser.add_argument("--rivals", default="", help=f"some of {','.join(RIVALS)}")
    parser.add_argument("--muscima", action="store_true", help="also fine-tune all for MUSCIMA++ and measure there")
    options = parser.parse_args()
    book = ledger("detect_deepscores", options)
    jobs: dict[str, Callable[[], None]] = {"DWD": lambda: measure(book, "DWD", own(options), options)}
    for name in (one for one in options.rivals.split(",") if one):
        jobs[name] = lambda name=name: measure(book, name, rival(name, options), options)  # type: ignore[misc]
        if options.muscima:
            jobs[f"{name}, handwriting"] = lambda name=name: rival_handwriting(book, name, options)  # type: ignore[misc]
    if options.muscima:
        jobs["handwriting"] = lambda: handwriting(book, options)

    def one(name: str) -> None:
        with book.claim(f"all of {name}") as mine:  # if it is another process's, that one does all of it
            if mine:
                jobs[name]()

    in_turn([partial(one, name) for name in jobs])
    book.write_table("Detection: synthetic, degraded, handwritten", _text)


def own(options: argparse.Namespace) -> Detector:
    """The detector of the house: trained, or one that is ready."""
    if not options.train or options.model:
        return Detector.load(options.model, options.device)
    return trained(DWD, TrainJob(options.train, options.runs, recipe=recipe_of(options)), options)[0]


def measure(book: Ledger, name: str, detector: DetectsPages, options: argparse.Namespace) -> None:
    """The rows of one detector: every test set, in V1's classes and in the extended ones; pages are seen once."""
    for test, pages in sets_of(options).items():
        seen = cache(partial(detect_pages, detector, pages))
        for judged in LISTS:
            find = partial(_judged, seen, pages, judged)
            book.row(f"{name}: {test}, {judged}", find)


def _judged(seen: Callable[[], Seen], pages: Sequence[TruthPage], judged: Judged) -> dict[str, Any]:
    return scores(judge(seen(), pages, judged))


def rival(name: str, options: argparse.Namespace) -> RivalDetector:
    """A detector of torchvision, trained on the same pages for the same time."""
    pages = [page for folder in options.train for page in read_truth(folder, "train")]
    sheets = pack_sheets(pages, DETECTOR_CLASSES)
    run = options.runs / f"detect_deepscores-{name}"
    with alone(run):
        return train_rival(name, sheets, recipe_of(options), options.minutes, run, options.device)[0]


def handwriting(book: Ledger, options: argparse.Namespace) -> None:
    """Fine-tunes the detector for MUSCIMA++ and measures its own classes on the test pages."""
    own(options)  # what it begins with, if it is trained here, has to be ready
    trained_here = options.runs / DWD / "detect.safetensors" if options.train and not options.model else None
    begin = trained_here or find_detector(options.model)
    recipe = replace(recipe_of(options, Recipe.for_handwriting()), seed=0)
    job = TrainJob(["muscima"], options.runs, classes="muscima", start=begin, recipe=recipe)
    _handwritten(book, "DWD", trained("detect_deepscores-muscima", job, options)[0], options)


def rival_handwriting(book: Ledger, name: str, options: argparse.Namespace) -> None:
    """The same for a rival: it goes on from what it learned of print, for the same time."""
    recipe = recipe_of(options, Recipe.for_handwriting())
    sheets = packed(TrainJob(["muscima"], options.runs, classes="muscima"))
    begin, run = rival(name, options).model, options.runs / f"detect_deepscores-muscima-{name}"
    with alone(run):
        detector, _ = train_rival(name, sheets, recipe, options.minutes, run, options.device, begin)
    _handwritten(book, name, detector, options)


def _handwritten(book: Ledger, name: str, detector: DetectsPages, options: argparse.Namespace) -> None:
    pages = spread_over(read_truth("muscima", "test"), options.pages)
    book.row(f"{name}: {HANDWRITTEN}", lambda: scores(evaluate(detector, pages, "own")))


def _text(book: Ledger) -> str:
    rows = []
    for key, row in book.rows.items():
        detector, _, test = key.partition(": ")
        figures = tuple(percent(row[name]) for name in ("mAP", "AP50", "AP25"))
        rows.append((detector, test, str(row["pages"]), *figures))
    header = ("detector", "pages, classes", "pages", "mAP", "AP50", "AP25")
    published = table(
        ("published mAP", "synthetic", "scans", "MUSCIMA++"), [(name, *cells) for name, cells in PUBLISHED.items()]
    )
    parts = [table(header, rows), published]
    if f"DWD: {HANDWRITTEN}" in book.rows:
        parts.append(handwritten_table(book.rows[f"DWD: {HANDWRITTEN}"]["classes"]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_command(main)
