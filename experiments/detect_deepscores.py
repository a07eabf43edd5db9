"""The last table of chapter 6: synthetic pages, degraded pages and handwriting, beside detectors of torchvision.

python -m experiments.detect_deepscores --train pages composed --test clean=pages scan=scans photo=photos --minutes 8

Detectors are kept in --runs, rows in results/detect_deepscores.json: a command that was stopped, or that is given more
sets or rivals, goes on from there. Without --train the shipped detector is measured, or that of --model, and no rival.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from entourage.detect.detector import Detector, find_detector
from entourage.detect.evaluate import DetectsPages, Judged, Seen, detect_pages, evaluate, judge
from entourage.detect.recipe import Recipe
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

RUN = "detect_deepscores-dwd"  # the folder of what is trained here
SHIPPED = "DWD, shipped"  # the name of what comes with the package, which has learned for longer
HANDWRITTEN = "MUSCIMA++, own"  # pages and classes
LISTS: tuple[Judged, ...] = ("v1", "extended")
Trained = tuple[DetectsPages, dict[str, Any]]
"""A detector, and how much it has learned."""
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
    house = name_of(options)
    makers: dict[str, Callable[[], Trained]] = {house: partial(own, options)}
    makers |= {name: partial(rival, name, options) for name in options.rivals.split(",") if name}
    jobs: dict[str, Callable[[], None]] = {}
    for name, make in makers.items():
        jobs[name] = partial(measure, book, name, make, options)
        if options.muscima:
            tune = handwriting if name == house else rival_handwriting
            jobs[f"{name}, handwriting"] = partial(tune, book, name, options)

    def one(name: str) -> None:
        with book.claim(f"all of {name}") as mine:  # if it is another process's, that one does all of it
            if mine:
                jobs[name]()

    in_turn([partial(one, name) for name in jobs])
    book.write_table("Detection: synthetic, degraded, handwritten", _text)


def name_of(options: argparse.Namespace) -> str:
    """What the detector of the house is called: one that learned as long as its rivals, or another that is ready."""
    if options.model:
        return f"DWD, {Path(options.model).name}"
    return "DWD" if options.train else SHIPPED


def own(options: argparse.Namespace) -> Trained:
    """The detector of the house: trained, or one that is ready."""
    if not options.train or options.model:
        return Detector.load(options.model, options.device), {}
    detector, summary = trained(RUN, TrainJob(options.train, options.runs, recipe=recipe_of(options)), options)
    return detector, _effort(summary)


def _effort(summary: Mapping[str, Any]) -> dict[str, Any]:
    """How much a detector has learned, for its rows."""
    return {"steps": summary["steps"], "training_minutes": summary["seconds"] / 60}


def measure(book: Ledger, name: str, make: Callable[[], Trained], options: argparse.Namespace) -> None:
    """The rows of one detector: every test set, in V1's classes and in the extended ones; pages are seen once."""
    sets = sets_of(options)
    keys = {(test, judged): f"{name}: {test}, {judged}" for test in sets for judged in LISTS}
    if not book.free(keys.values()):
        return
    detector, effort = make()
    for test, pages in sets.items():
        seen = cache(partial(detect_pages, detector, pages))
        for judged in LISTS:
            find = partial(_judged, seen, pages, judged, effort)
            book.row(keys[test, judged], find)
            effort = {}  # the first row tells it, and its minutes count once


def _judged(
    seen: Callable[[], Seen], pages: Sequence[TruthPage], judged: Judged, effort: Mapping[str, Any]
) -> dict[str, Any]:
    return {**scores(judge(seen(), pages, judged)), **effort}


def rival(name: str, options: argparse.Namespace) -> tuple[RivalDetector, dict[str, Any]]:
    """A detector of torchvision, trained on the same pages for the same time."""
    sheets = packed(TrainJob(options.train, options.runs))
    run = options.runs / f"detect_deepscores-{name}"
    with alone(run):
        detector, summary = train_rival(name, sheets, recipe_of(options), options.minutes, run, options.device)
    return detector, _effort(summary)


def handwriting(book: Ledger, name: str, options: argparse.Namespace) -> None:
    """Fine-tunes the detector for MUSCIMA++ and measures its own classes on the test pages."""
    own(options)  # what it begins with, if it is trained here, has to be ready
    trained_here = options.runs / RUN / "detect.safetensors" if options.train and not options.model else None
    begin = trained_here or find_detector(options.model)
    recipe = replace(recipe_of(options, Recipe.for_handwriting()), seed=0)
    job = TrainJob(["muscima"], options.runs, classes="muscima", start=begin, recipe=recipe)
    run = "detect_deepscores-muscima" + ("" if name == SHIPPED else f"-{name.lower().replace(', ', '-')}")
    detector, summary = trained(run, job, options)
    _handwritten(book, name, detector, _effort(summary), options)


def rival_handwriting(book: Ledger, name: str, options: argparse.Namespace) -> None:
    """The same for a rival: it goes on from what it learned of print, for the same time."""
    recipe = recipe_of(options, Recipe.for_handwriting())
    sheets = packed(TrainJob(["muscima"], options.runs, classes="muscima"))
    begin, run = rival(name, options)[0].model, options.runs / f"detect_deepscores-muscima-{name}"
    with alone(run):
        detector, summary = train_rival(name, sheets, recipe, options.minutes, run, options.device, begin)
    _handwritten(book, name, detector, _effort(summary), options)


def _handwritten(
    book: Ledger, name: str, detector: DetectsPages, effort: Mapping[str, Any], options: argparse.Namespace
) -> None:
    pages = spread_over(read_truth("muscima", "test"), options.pages)
    book.row(f"{name}: {HANDWRITTEN}", lambda: {**scores(evaluate(detector, pages, "own")), **effort})


def _text(book: Ledger) -> str:
    rows = []
    for key, row in book.rows.items():
        detector, _, test = key.partition(": ")
        figures = tuple(percent(row[name]) for name in ("mAP", "AP50", "AP25"))
        minutes = f"{row['training_minutes']:.1f}" if "training_minutes" in row else ""
        rows.append((detector, test, str(row["pages"]), *figures, minutes))
    header = ("detector", "pages, classes", "pages", "mAP", "AP50", "AP25", "minutes of training")
    published = table(
        ("published mAP", "synthetic", "scans", "MUSCIMA++"), [(name, *cells) for name, cells in PUBLISHED.items()]
    )
    parts = [table(header, rows), published]
    handwritten = [book.rows[key] for name in (SHIPPED, "DWD") if (key := f"{name}: {HANDWRITTEN}") in book.rows]
    if handwritten:
        parts.append(handwritten_table(handwritten[0]["classes"]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_command(main)
