"""Detection on synthetic, degraded and handwritten pages next to torchvision's detectors (last table of chapter 6).

python -m experiments.detect_deepscores --train pages composed --test clean=pages scan=scans photo=photos --minutes 8

Detectors are stored in --runs, rows in results/detect_deepscores.json; a command that was interrupted, or has more sets
or baselines, resumes from there. Without --train, the shipped detector or that of --model is measured; --baselines
requires --train.
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
from experiments.command import run_command
from experiments.detect_baseline_models import BASELINES, need_torchvision
from experiments.detect_baselines import BaselineDetector, train_baseline
from experiments.detect_handwriting import handwritten_table, synthetic_table
from experiments.detect_rows import (
    load_test_sets,
    make_recipe,
    measured_rows,
    median_sizes,
    packed_pages,
    percent,
    record_training,
    require_test_sets,
    run_folder,
    score_row,
    set_title,
    sort_rows,
    train_or_load,
    training_parser,
    training_row,
)
from experiments.ledger import Ledger, ledger_of
from experiments.locks import exclusive
from experiments.tables import table

RUN = "detect_deepscores-dwd"  # run directory of the detector that is trained here
SHIPPED = "DWD, shipped"  # name of the shipped detector, which was trained for longer
EARLIER = "DWD, weights of 0.1"  # the detector that was shipped until it was trained further
HANDWRITTEN = "MUSCIMA++, own"  # test set and class list: those of the data set
TITLE = "Detection: synthetic, degraded, handwritten"
LISTS: tuple[ClassList, ...] = ("v1", "extended")
REHEARSAL_MINUTES = 0.01  # training time of a trial run: a few steps
PUBLISHED = {
    "thesis, DWD with ResNet": ("41.4", "47.3", "19.9"),
    "thesis, U-Net": ("24.8", "-", "16.6"),
    "thesis, Faster R-CNN": ("19.6", "-", "3.9"),
    "thesis, RetinaNet": ("9.8", "-", "7.7"),
}


def main() -> None:
    """Train, measure and write the table."""
    parser = training_parser("Detection on synthetic, degraded and handwritten pages.", minutes=8)
    parser.add_argument("--baselines", default="", help=f"Some of {','.join(BASELINES)}, trained on the same pages.")
    parser.add_argument(
        "--muscima", action="store_true", help="Fine-tune all detectors on MUSCIMA++ as well and evaluate them there."
    )
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
    book.run_jobs(jobs)
    book.write_table(TITLE, _text)


def selected_baselines(options: argparse.Namespace) -> list[str]:
    """Return the names of the requested baselines.

    Raises:
        ValueError: a name is unknown, `--train` is missing, or torchvision cannot be imported.
    """
    baselines = [name for name in options.baselines.split(",") if name]
    for name in baselines:
        if name not in BASELINES:
            raise ValueError(f"--baselines: {name!r} is unknown; expected some of {', '.join(BASELINES)}")
    if baselines and not options.train:
        raise ValueError("--train: missing with --baselines; expected folders of training pages")
    if baselines:
        need_torchvision()
    return baselines


def name_of(options: argparse.Namespace) -> str:
    """Return the name of the Deep Watershed Detector in the rows.

    "DWD" is trained here, for as long as the baselines. A detector of --model is named by its path, since the files of
    all trained detectors have the same name.
    """
    if options.model:
        return f"DWD, {options.model}"
    return "DWD" if options.train else SHIPPED


def train_or_load_detector(book: Ledger, name: str, options: argparse.Namespace) -> PageDetector:
    """Train the Deep Watershed Detector, or load the shipped one or that of --model."""
    if not _is_trained(options):
        return Detector.load(options.model, options.device)
    detector, summary = train_or_load(
        RUN, TrainConfig(options.train, options.runs, recipe=make_recipe(options)), options
    )
    record_training(book, name, summary)
    return detector


def _is_trained(options: argparse.Namespace) -> bool:
    """Return whether the Deep Watershed Detector is trained here."""
    return bool(options.train and not options.model)


def measure(book: Ledger, name: str, make: Callable[[], PageDetector], options: argparse.Namespace) -> None:
    """Measure the rows of one detector: all test sets, in the classes of V1 and in the extended ones, detected once."""
    sets = load_test_sets(options)
    keys = {(test, class_list): f"{name}: {test}, {class_list}" for test in sets for class_list in LISTS}
    if not book.missing(keys.values()):
        return
    detector = make()
    for test, pages in sets.items():
        detections = cache(partial(detect_pages, detector, pages))
        for class_list in LISTS:
            book.row(keys[test, class_list], partial(_scored_row, detections, pages, class_list))


def _scored_row(
    detections: Callable[[], TimedDetections], pages: Sequence[GroundTruthPage], class_list: ClassList
) -> dict[str, Any]:
    row = score_row(evaluate_detections(detections(), pages, class_list))
    return {**row, "sizes": median_sizes(pages, class_list)}


def baseline(book: Ledger, name: str, options: argparse.Namespace) -> BaselineDetector:
    """Train a torchvision detector on the same pages for the same time."""
    pack = packed_pages(TrainConfig(options.train, options.runs))
    run, minutes = run_folder(f"detect_deepscores-{name}", options), _minutes(options)
    with exclusive(run):
        detector, summary = train_baseline(name, pack, make_recipe(options), minutes, run, options.device)
    record_training(book, name, summary)
    return detector


def _minutes(options: argparse.Namespace) -> float:
    """Return the training time of the baselines; a trial run has no fixed number of steps."""
    return REHEARSAL_MINUTES if options.small else float(options.minutes)


def handwriting(book: Ledger, name: str, options: argparse.Namespace) -> PageDetector:
    """Fine-tune the Deep Watershed Detector for the classes of MUSCIMA++."""
    if _is_trained(options):
        train_or_load_detector(book, name, options)  # trained if it is missing
        start = run_folder(RUN, options) / "detect.safetensors"
    else:
        start = find_detector(options.model)
    recipe = make_recipe(options, Recipe.for_handwriting())
    config = TrainConfig(["muscima"], options.runs, classes="muscima", start=start, recipe=recipe)
    detector, summary = train_or_load(_tuned_run(options), config, options)
    record_training(book, f"{name}, handwriting", summary)
    return detector


def _tuned_run(options: argparse.Namespace) -> str:
    """Return the run directory of the fine-tuned detector, which depends on the initial detector."""
    if options.model:
        return f"detect_deepscores-muscima-dwd-{quote(str(options.model), safe='')}"
    return "detect_deepscores-muscima-dwd" if options.train else "detect_deepscores-muscima"


def baseline_handwriting(book: Ledger, name: str, options: argparse.Namespace) -> BaselineDetector:
    """Fine-tune a torchvision detector from its training on print, for the same time."""
    recipe = make_recipe(options, Recipe.for_handwriting())
    start = baseline(book, name, options).model
    pack = packed_pages(TrainConfig(["muscima"], options.runs, classes="muscima"))
    run, minutes = run_folder(f"detect_deepscores-muscima-{name}", options), _minutes(options)
    with exclusive(run):
        detector, summary = train_baseline(name, pack, recipe, minutes, run, options.device, start)
    record_training(book, f"{name}, handwriting", summary)
    return detector


def measure_handwriting(book: Ledger, name: str, make: Callable[[], PageDetector], options: argparse.Namespace) -> None:
    """Measure the row of one detector on the test pages of MUSCIMA++, in the classes of the data set."""
    key = f"{name}: {HANDWRITTEN}"
    if book.missing([key]):
        pages = subsample_evenly(read_ground_truth("muscima", "test"), options.pages)
        detector = make()
        book.row(key, lambda: score_row(evaluate(detector, pages, "own")))


def _training_minutes(book: Ledger, key: str) -> str:
    """Return the recorded training minutes of the detector of a row: print, + handwriting."""
    detector, _, test = key.partition(": ")
    stages = [training_row(book, detector) or book.rows[key]]
    if test == HANDWRITTEN:
        stages = [training_row(book, detector), training_row(book, f"{detector}, handwriting")]
    return " + ".join(f"{one['training_minutes']:.1f}" if "training_minutes" in one else "" for one in stages).strip()


def _text(book: Ledger) -> str:
    rows = []
    for key, row in sort_rows(measured_rows(book), (SHIPPED, EARLIER, "DWD", *BASELINES)).items():
        detector, _, test = key.partition(": ")
        figures = tuple(percent(row[name]) for name in ("mAP", "AP50", "AP25"))
        rows.append(
            (
                detector,
                set_title(test),
                str(row["pages"]),
                str(len(row["classes"])),
                *figures,
                _training_minutes(book, key),
            )
        )
    header = ("detector", "test set, class list", "pages", "classes", "mAP", "AP50", "AP25", "minutes of training")
    published = table(
        ("published mAP (other training and test pages)", "synthetic", "printed and scanned", "MUSCIMA++"),
        [(name, *cells) for name, cells in PUBLISHED.items()],
    )
    parts = [table(header, rows), published]
    synthetic = [book.rows[key] for name in (SHIPPED, "DWD") if (key := f"{name}: clean, v1") in book.rows]
    if synthetic:
        parts.append(synthetic_table(synthetic[0]["classes"], synthetic[0].get("sizes", {})))
    handwritten = [book.rows[key] for name in (SHIPPED, "DWD") if (key := f"{name}: {HANDWRITTEN}") in book.rows]
    if handwritten:
        parts.append(handwritten_table(handwritten[0]["classes"]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_command(main)
