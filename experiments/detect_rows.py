"""Shared parts of the `detect` experiments: options, trained detectors, test sets and rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage, read_ground_truth, subsample_evenly
from entourage.detect.evaluation.page_evaluation import ClassList, Evaluation, ground_truth_detections
from entourage.detect.options import InferenceOptions, NetworkOptions, preset
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig, TrainingClasses, load_training_pages, train_detector
from entourage.detect.training.windows import PagePack, WindowOptions
from experiments.ledger import Ledger, Row, run_name
from experiments.locks import exclusive

SMALL_NETWORK = NetworkOptions(widths=(16, 32, 32), blocks=(1, 1, 1), upwards=(16, 16, 16), hidden=32)
_TRAINING = "training of "  # prefix of rows with the steps and minutes of a training
_SIMULATED = ("scan", "photo")  # test sets degraded by `entourage engrave`; no real scans or photographs


def measurement_parser(text: str) -> argparse.ArgumentParser:
    """Return a parser for experiments without training."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--test", nargs="+", default=[], metavar="NAME=FOLDER", help="Test sets.")
    parser.add_argument(
        "--split", default="test", help="Split of the test sets; all if the training data contain none of their works."
    )
    parser.add_argument("--pages", type=int, default=60, help="Maximum number of pages per test set.")
    parser.add_argument("--model", default=None, help="A trained detector; default: the shipped one.")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results; default: results/.")
    parser.add_argument("--device", default="auto")
    return parser


def training_parser(text: str, minutes: float) -> argparse.ArgumentParser:
    """Return a parser for experiments with training."""
    parser = measurement_parser(text)
    parser.add_argument("--train", nargs="+", default=[], help="Folders of `entourage engrave` with training pages.")
    parser.add_argument("--minutes", type=float, default=minutes, help="Training time of each detector.")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="Folder of detectors and checkpoints.")
    parser.add_argument("--small", action="store_true", help="Trial run: a tiny network, a few steps.")
    return parser


def run_folder(name: str, options: argparse.Namespace) -> Path:
    """Return the run directory of a training."""
    folder: Path = options.runs / run_name(name, small=options.small)
    return folder


def record_training(book: Ledger, name: str, summary: Mapping[str, Any]) -> None:
    """Store the steps and minutes of a training in a separate row, so that they are summed only once.

    A repeated training replaces the row.

    Args:
        book: the ledger.
        name: name of the trained detector.
        summary: summary of its training, with "steps" and "seconds".
    """
    values = {"steps": summary["steps"], "training_minutes": summary["seconds"] / 60}
    if training_row(book, name) != values:
        book.add(f"{_TRAINING}{name}", values, 0.0)


def training_row(book: Ledger, name: str) -> dict[str, Any]:
    """Return the steps and minutes of a training; empty if it was not trained by this experiment."""
    return book.values(f"{_TRAINING}{name}") or {}


def measured_rows(book: Ledger) -> dict[str, Row]:
    """Return all rows except those of trainings."""
    return {key: row for key, row in book.rows.items() if not key.startswith(_TRAINING)}


def sort_rows(rows: Mapping[str, Row], names: Collection[str]) -> dict[str, Row]:
    """Sort rows "NAME: SET" by the order of the names; other names come last."""
    places = {name: place for place, name in enumerate(names)}
    return dict(sorted(rows.items(), key=lambda row: places.get(row[0].partition(": ")[0], len(places))))


def load_test_sets(options: argparse.Namespace) -> dict[str, list[GroundTruthPage]]:
    """Read the test sets; pages are subsampled evenly."""
    sets = {}
    for word in options.test:
        name, _, folder = word.partition("=")
        if not folder:
            raise ValueError(f"--test: {word!r} names no folder; expected NAME=FOLDER")
        sets[name] = subsample_evenly(
            read_ground_truth(folder, None if options.split == "all" else options.split), options.pages
        )
    return sets


def require_test_sets(options: argparse.Namespace, more: str = "") -> None:
    """Check, before any training, that there is a test set.

    Args:
        options: options of the command.
        more: appended to the expectation in the message, such as ", or --muscima".

    Raises:
        ValueError: `--test` is missing.
    """
    if not options.test:
        raise ValueError(f"--test: missing; expected --test NAME=FOLDER{more}")


def make_recipe(options: argparse.Namespace, recipe: Recipe | None = None) -> Recipe:
    """Return the recipe, or a tiny version of it for a trial run."""
    recipe = recipe or Recipe()
    if not options.small:
        return recipe
    window = WindowOptions(height=64, width=128) if not recipe.margin else WindowOptions(height=64, width=128 * 7)
    return replace(recipe, steps=3, batch=1, epoch=3, validation=1, warmup=1, window=window)


def train_or_load(
    name: str, config: TrainConfig, options: argparse.Namespace, inference: InferenceOptions | None = None
) -> tuple[Detector, dict[str, Any]]:
    """Train a detector, or load it from its run directory.

    Args:
        name: name of the run directory.
        config: training configuration.
        options: options of the command.
        inference: inference options of the returned detector; None for the defaults.

    Returns:
        The detector and the summary of its training.

    Raises:
        BusyError: another process is training it.
    """
    config = replace(config, out=run_folder(name, options), minutes=None if options.small else options.minutes)
    if options.small:
        base = config.options or preset(config.preset)
        encoder = SMALL_NETWORK if base.network.encoder == "small" else replace(base.network, encoder="resnet18")
        config = replace(config, options=replace(base, network=encoder))
    with exclusive(config.out):
        done = config.out / "summary.json"
        if done.is_file():
            summary = json.loads(done.read_text(encoding="utf-8"))
        else:
            config = replace(config, device=options.device)
            summary = train_detector(config, packed_pages(config))
    return Detector.load(config.out / "detect.safetensors", options.device, inference), summary


def packed_pages(config: TrainConfig) -> PagePack:
    """Read the training pages of a configuration; cached for configurations with the same pages."""
    return _packed_pages(tuple(map(str, config.data)), config.classes)


@cache
def _packed_pages(folders: tuple[str, ...], classes: TrainingClasses) -> PagePack:
    return load_training_pages(TrainConfig(folders, Path(), classes=classes))


def score_row(evaluation: Evaluation) -> dict[str, Any]:
    """Return means over classes, seconds per page, and for each class the number of objects, AP, AP50 and AP25."""
    means = evaluation.scores.means()
    parts = (evaluation.scores.ap, evaluation.scores.ap50, evaluation.scores.ap25)
    each = zip(evaluation.scores.classes, evaluation.scores.counts, *parts, strict=True)
    return {
        "mAP": means["mAP"],
        "AP50": means["AP50"],
        "AP25": means["AP25"],
        "mAP by instance": means["mAP by instance"],
        "pages": evaluation.pages,
        "objects": evaluation.objects,
        "seconds": evaluation.seconds,
        "classes": {name: [int(n), *(round(float(one), 4) for one in values)] for name, n, *values in each},
    }


def median_sizes(pages: Sequence[GroundTruthPage], class_list: ClassList) -> dict[str, list[float]]:
    """Return the median width and height of the symbols of each class, in interlines."""
    sizes: dict[str, list[Any]] = {}
    for page in pages:
        truth = ground_truth_detections(page, class_list)
        for name, (x0, y0, x1, y1) in zip(truth.names, truth.boxes.tolist(), strict=True):
            sizes.setdefault(name, []).append(((x1 - x0) / page.interline, (y1 - y0) / page.interline))
    return {name: [round(float(v), 3) for v in np.median(each, axis=0)] for name, each in sizes.items()}


def percent(value: float | None) -> str:
    """Format a fraction as a percentage; "-" if it is missing."""
    return "-" if value is None or not np.isfinite(value) else f"{100 * value:.1f}"


def set_title(test: str) -> str:
    """Return the name of a test set in tables; "scan" and "photo", with or without a class list, are simulated."""
    name = test.partition(",")[0]
    return f"simulated {test}" if name in _SIMULATED else test
