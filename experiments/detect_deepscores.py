"""The last table of chapter 6: synthetic pages, degraded pages and handwriting, beside detectors of torchvision.

python -m experiments.detect_deepscores --train pages composed --test clean=pages scan=scans photo=photos --minutes 8

Detectors are kept in --runs, rows in results/detect_deepscores.json: a command that was stopped, or that is given more
sets or rivals, goes on from there. Without --train the shipped detector is measured, or that of --model; rivals need
pages to learn from.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import quote

from entourage.detect.detector import Detector, find_detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage, read_ground_truth, subsample_evenly
from entourage.detect.evaluation.page_evaluation import (
    ClassList,
    PageDetector,
    TimedDetections,
    detect_pages,
    evaluate,
    evaluate_detections,
)
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig
from experiments.claims import alone
from experiments.command import run_command
from experiments.detect_handwriting import handwritten_table
from experiments.detect_rival_models import BASELINES, need_torchvision
from experiments.detect_rivals import BaselineDetector, train_baseline
from experiments.detect_rows import (
    load_test_sets,
    make_recipe,
    measured_rows,
    packed_pages,
    percent,
    record_training,
    require_test_sets,
    run_folder,
    score_row,
    sort_rows,
    train_or_load,
    training_parser,
    training_row,
)
from experiments.ledger import Ledger, ledger_of
from experiments.tables import table

RUN = "detect_deepscores-dwd"  # the folder of what is trained here
SHIPPED = "DWD, shipped"  # the name of what comes with the package, which has learned for longer
HANDWRITTEN = "MUSCIMA++, own"  # pages and classes
LISTS: tuple[ClassList, ...] = ("v1", "extended")
REHEARSAL_MINUTES = 0.01  # of a rehearsal: a few steps
PUBLISHED = {
    "thesis, DWD": ("41.4", "47.3", "19.9"),
    "thesis, U-Net": ("24.8", "-", "16.6"),
    "thesis, Faster R-CNN": ("19.6", "-", "3.9"),
    "thesis, RetinaNet": ("9.8", "-", "7.7"),
}


def main() -> None:
    """Trains, measures, and writes the table."""
    parser = training_parser("Detection on synthetic, degraded and handwritten pages", minutes=8)
    parser.add_argument(
        "--rivals", dest="baselines", default="", help=f"some of {','.join(BASELINES)}; they learn from the same pages"
    )
    parser.add_argument("--muscima", action="store_true", help="also fine-tune all for MUSCIMA++ and measure there")
    options = parser.parse_args()
    if not options.muscima:
        require_test_sets(options, ", or --muscima")
    baselines = selected_baselines(options)
    book = ledger_of("detect_deepscores", options.results, small=options.small)
    jobs: dict[str, Callable[[], None]] = {}
    for name in (name_of(options), *baselines):
        make, tune = (baseline, baseline_handwriting) if name in baselines else (train_or_load_detector, handwriting)
        jobs[name] = partial(measure, book, name, partial(make, book, name, options), options)
        if options.muscima:
            tuned = partial(tune, book, name, options)
            jobs[f"{name}, handwriting"] = partial(measure_handwriting, book, name, tuned, options)
    book.work_through(jobs)
    book.write_table("Detection: synthetic, degraded, handwritten", _text)


def selected_baselines(options: argparse.Namespace) -> list[str]:
    """The rivals that are asked for.

    Raises:
        ValueError: one is unknown, or there are no pages to train them on, or no torchvision.
    """
    baselines = [name for name in options.baselines.split(",") if name]
    for name in baselines:
        if name not in BASELINES:
            raise ValueError(f"rival {name!r} is unknown; expected some of {', '.join(BASELINES)}")
    if baselines and not options.train:
        raise ValueError("--rivals without --train: a rival learns here alone; expected folders to learn from")
    if baselines:
        need_torchvision()
    return baselines


def name_of(options: argparse.Namespace) -> str:
    """What the detector of the house is called: one that learned as long as its rivals, or another that is ready.

    One that is ready goes by its path as it was given: what is trained here is called the same in every folder.
    """
    if options.model:
        return f"DWD, {options.model}"
    return "DWD" if options.train else SHIPPED


def train_or_load_detector(book: Ledger, name: str, options: argparse.Namespace) -> PageDetector:
    """The detector of the house: trained, or one that is ready."""
    if not _is_trained(options):
        return Detector.load(options.model, options.device)
    detector, summary = train_or_load(
        RUN, TrainConfig(options.train, options.runs, recipe=make_recipe(options)), options
    )
    record_training(book, name, summary)
    return detector


def _is_trained(options: argparse.Namespace) -> bool:
    """Whether the detector of the house is trained here."""
    return bool(options.train and not options.model)


def measure(book: Ledger, name: str, make: Callable[[], PageDetector], options: argparse.Namespace) -> None:
    """The rows of one detector: every test set, in V1's classes and in the extended ones; pages are seen once."""
    sets = load_test_sets(options)
    keys = {(test, class_list): f"{name}: {test}, {class_list}" for test in sets for class_list in LISTS}
    if not book.free(keys.values()):
        return
    detector = make()
    for test, pages in sets.items():
        seen = cache(partial(detect_pages, detector, pages))
        for class_list in LISTS:
            book.row(keys[test, class_list], partial(_scored_row, seen, pages, class_list))


def _scored_row(
    seen: Callable[[], TimedDetections], pages: Sequence[GroundTruthPage], class_list: ClassList
) -> dict[str, Any]:
    return score_row(evaluate_detections(seen(), pages, class_list))


def baseline(book: Ledger, name: str, options: argparse.Namespace) -> BaselineDetector:
    """A detector of torchvision, trained on the same pages for the same time."""
    pack = packed_pages(TrainConfig(options.train, options.runs))
    run, minutes = run_folder(f"detect_deepscores-{name}", options), _minutes(options)
    with alone(run):
        detector, summary = train_baseline(name, pack, make_recipe(options), minutes, run, options.device)
    record_training(book, name, summary)
    return detector


def _minutes(options: argparse.Namespace) -> float:
    """How long rivals learn, who know times and not steps."""
    return REHEARSAL_MINUTES if options.small else float(options.minutes)


def handwriting(book: Ledger, name: str, options: argparse.Namespace) -> PageDetector:
    """The detector of the house, fine-tuned for the classes of MUSCIMA++."""
    if _is_trained(options):
        train_or_load_detector(book, name, options)  # it has to be ready
        begin = run_folder(RUN, options) / "detect.safetensors"
    else:
        begin = find_detector(options.model)
    recipe = make_recipe(options, Recipe.for_handwriting())
    config = TrainConfig(["muscima"], options.runs, classes="muscima", start=begin, recipe=recipe)
    detector, summary = train_or_load(_tuned_run(options), config, options)
    record_training(book, f"{name}, handwriting", summary)
    return detector


def _tuned_run(options: argparse.Namespace) -> str:
    """What the folder of the fine-tuned detector is called: another for every one that it begins with."""
    if options.model:
        return f"detect_deepscores-muscima-dwd-{quote(str(options.model), safe='')}"
    return "detect_deepscores-muscima-dwd" if options.train else "detect_deepscores-muscima"


def baseline_handwriting(book: Ledger, name: str, options: argparse.Namespace) -> BaselineDetector:
    """The same for a rival: it goes on from what it learned of print, for the same time."""
    recipe = make_recipe(options, Recipe.for_handwriting())
    begin = baseline(book, name, options).model
    pack = packed_pages(TrainConfig(["muscima"], options.runs, classes="muscima"))
    run, minutes = run_folder(f"detect_deepscores-muscima-{name}", options), _minutes(options)
    with alone(run):
        detector, summary = train_baseline(name, pack, recipe, minutes, run, options.device, begin)
    record_training(book, f"{name}, handwriting", summary)
    return detector


def measure_handwriting(book: Ledger, name: str, make: Callable[[], PageDetector], options: argparse.Namespace) -> None:
    """The row of one detector on the test pages of MUSCIMA++, in its own classes."""
    key = f"{name}: {HANDWRITTEN}"
    if book.free([key]):
        pages = subsample_evenly(read_ground_truth("muscima", "test"), options.pages)
        detector = make()
        book.row(key, lambda: score_row(evaluate(detector, pages, "own")))


def _learned(book: Ledger, key: str) -> str:
    """The minutes that the detector of a row has learned, as far as they are known: of print, + of handwriting."""
    detector, _, test = key.partition(": ")
    stages = [training_row(book, detector) or book.rows[key]]
    if test == HANDWRITTEN:
        stages = [training_row(book, detector), training_row(book, f"{detector}, handwriting")]
    return " + ".join(f"{one['training_minutes']:.1f}" if "training_minutes" in one else "" for one in stages).strip()


def _text(book: Ledger) -> str:
    rows = []
    for key, row in sort_rows(measured_rows(book), (SHIPPED, "DWD", *BASELINES)).items():
        detector, _, test = key.partition(": ")
        figures = tuple(percent(row[name]) for name in ("mAP", "AP50", "AP25"))
        rows.append((detector, test, str(row["pages"]), str(len(row["classes"])), *figures, _learned(book, key)))
    header = ("detector", "pages, list", "pages", "classes", "mAP", "AP50", "AP25", "minutes of training")
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
