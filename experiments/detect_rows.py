"""Rows that the experiments of `detect` share: a detector trained for a time, measured on several sets of pages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage, read_ground_truth, subsample_evenly
from entourage.detect.evaluation.page_evaluation import Evaluation
from entourage.detect.options import InferenceOptions, NetworkOptions, preset
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig, TrainingClasses, load_training_pages, train_detector
from entourage.detect.training.windows import PagePack, WindowOptions
from experiments.claims import alone
from experiments.ledger import Ledger, Row, run_name

SMALL_NETWORK = NetworkOptions(widths=(16, 32, 32), blocks=(1, 1, 1), upwards=(16, 16, 16), hidden=32)
_TRAINING = "training of "  # begins the names of rows that tell of one


def measurement_parser(text: str) -> argparse.ArgumentParser:
    """Options of an experiment that measures what is ready."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--test", nargs="+", default=[], metavar="NAME=FOLDER", help="what to measure on")
    parser.add_argument("--split", default="test", help="of the test sets; all if none of their works is learned from")
    parser.add_argument("--pages", type=int, default=60, help="of each test set, at most")
    parser.add_argument("--model", default=None, help="a trained detector; the shipped one if left out")
    parser.add_argument("--results", type=Path, default=None, help="where the rows go, if not to results/")
    parser.add_argument("--device", default="auto")
    return parser


def training_parser(text: str, minutes: float) -> argparse.ArgumentParser:
    """The same for an experiment that trains."""
    parser = measurement_parser(text)
    parser.add_argument("--train", nargs="+", default=[], help="folders made by `entourage engrave`, to learn from")
    parser.add_argument("--minutes", type=float, default=minutes, help="of training, for each detector")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="for detectors and checkpoints")
    parser.add_argument("--small", action="store_true", help="a tiny network for a few steps, to try the way")
    return parser


def run_folder(name: str, options: argparse.Namespace) -> Path:
    """Where a training is kept."""
    folder: Path = options.runs / run_name(name, small=options.small)
    return folder


def record_training(book: Ledger, name: str, summary: Mapping[str, Any]) -> None:
    """Keeps how much something has learned, in a row of its own: however many rows it is measured in, it counts once.

    What was trained anew replaces what is known: the rows that are measured with it are the new one's.

    Args:
        book: where the rows go.
        name: of what has learned.
        summary: how its training went.
    """
    values = {"steps": summary["steps"], "training_minutes": summary["seconds"] / 60}
    if training_row(book, name) != values:
        book.add(f"{_TRAINING}{name}", values, 0.0)


def training_row(book: Ledger, name: str) -> dict[str, Any]:
    """How much something has learned; nothing if that is not known, as of what was ready."""
    return book.values(f"{_TRAINING}{name}") or {}


def measured_rows(book: Ledger) -> dict[str, Row]:
    """The rows for a table: all but those of trainings."""
    return {key: row for key, row in book.rows.items() if not key.startswith(_TRAINING)}


def sort_rows(rows: Mapping[str, Row], names: Collection[str]) -> dict[str, Row]:
    """Rows NAME: SET of a table by the order of the names, however they came in; those of other names come last."""
    places = {name: place for place, name in enumerate(names)}
    return dict(sorted(rows.items(), key=lambda row: places.get(row[0].partition(": ")[0], len(places))))


def load_test_sets(options: argparse.Namespace) -> dict[str, list[GroundTruthPage]]:
    """Pages by the name of their set, evenly from all of its test pages."""
    sets = {}
    for given in options.test:
        name, _, folder = given.partition("=")
        if not folder:
            raise ValueError(f"{given!r} names no folder; expected NAME=FOLDER")
        sets[name] = subsample_evenly(
            read_ground_truth(folder, None if options.split == "all" else options.split), options.pages
        )
    return sets


def require_test_sets(options: argparse.Namespace, more: str = "") -> None:
    """Refuses a command that says nothing to measure on, before it trains what nobody asks for.

    Args:
        options: of the command.
        more: what else to say of what is expected, such as ", or --muscima".

    Raises:
        ValueError: it names no set of pages.
    """
    if not options.test:
        raise ValueError(f"--test is missing, so there is nothing to measure on; expected --test NAME=FOLDER{more}")


def make_recipe(options: argparse.Namespace, recipe: Recipe | None = None) -> Recipe:
    """The recipe, or a tiny version of it."""
    recipe = recipe or Recipe()
    if not options.small:
        return recipe
    window = WindowOptions(height=64, width=128) if not recipe.margin else WindowOptions(height=64, width=128 * 7)
    return replace(recipe, steps=3, batch=1, epoch=3, validation=1, warmup=1, window=window)


def train_or_load(
    name: str, config: TrainConfig, options: argparse.Namespace, inference: InferenceOptions | None = None
) -> tuple[Detector, dict[str, Any]]:
    """A detector trained for the time, or found in its folder, and how its training went.

    Args:
        name: of its folder.
        config: what it learns, and how.
        options: of the command.
        inference: options of the returned detector; None: the defaults.

    Raises:
        BusyError: another process is training it.
    """
    config = replace(config, out=run_folder(name, options), minutes=None if options.small else options.minutes)
    if options.small:
        base = config.options or preset(config.preset)
        encoder = SMALL_NETWORK if base.network.encoder == "small" else replace(base.network, encoder="resnet18")
        config = replace(config, options=replace(base, network=encoder))
    with alone(config.out):
        done = config.out / "summary.json"
        if done.is_file():
            summary = json.loads(done.read_text(encoding="utf-8"))
        else:
            config = replace(config, device=options.device)
            summary = train_detector(config, packed_pages(config))
    return Detector.load(config.out / "detect.safetensors", options.device, inference), summary


def packed_pages(config: TrainConfig) -> PagePack:
    """The pages that a job learns from, read once for all jobs on the same pages."""
    return _packed_pages(tuple(map(str, config.data)), config.classes)


@cache
def _packed_pages(folders: tuple[str, ...], classes: TrainingClasses) -> PagePack:
    return load_training_pages(TrainConfig(folders, Path(), classes=classes))


def score_row(found: Evaluation) -> dict[str, Any]:
    """Means over classes, seconds a page, and of every class the number of objects, AP, AP50 and AP25."""
    means = found.scores.means()
    parts = (found.scores.ap, found.scores.ap50, found.scores.ap25)
    each = zip(found.scores.classes, found.scores.counts, *parts, strict=True)
    return {
        "mAP": means["mAP"],
        "AP50": means["AP50"],
        "AP25": means["AP25"],
        "mAP by instance": means["mAP by instance"],
        "pages": found.pages,
        "objects": found.objects,
        "seconds": found.seconds,
        "classes": {name: [int(n), *(round(float(one), 4) for one in values)] for name, n, *values in each},
    }


def percent(value: float | None) -> str:
    """A share as it stands in tables."""
    return "-" if value is None or not np.isfinite(value) else f"{100 * value:.1f}"
