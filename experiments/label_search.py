"""Selection of the settings of each method of chapter 3, without test images.

ENTOURAGE_DATA=... python -m experiments.label_search

A tenth of the training images of CIFAR-10 is held out of training, and accuracy is measured on it. Each method is
measured with four settings (see `experiments.label_settings`) and 50 labels, sampled with other seeds than those of the
tables. `experiments.label_cifar10` and `experiments.label_fractions` use the setting with the best mean. An interrupted
run resumes, and several processes may run the command in parallel and share the rows.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from entourage.data.datasets.registry import find_dataset
from entourage.data.image_set import ImageSet
from entourage.data.splits import sample_labels, stratified_split
from entourage.label.semi_supervised.baselines import FROZEN
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.training import NonFiniteLossError
from experiments.command import run_command
from experiments.label_cifar10 import BACKBONE
from experiments.label_rows import (
    Clock,
    Setting,
    arguments,
    ledger_of,
    options_of,
    prepare,
    subset_for,
    trained_row,
    with_views,
)
from experiments.label_settings import CANDIDATES, GAME, SEARCH, Settings, choose, key, named, search_text
from experiments.ledger import FAILED, Ledger
from experiments.side_by_side import side_by_side

LABELS = 50
SEEDS = (100, 101)  # the tables use 0 and up
TRAIN_SHARE, HELD_OUT_SEED = 0.9, 1000
ORDER = (*FROZEN, GAME, "fixmatch", "mean-teacher", "vat", "pseudo-label", "pi-model", "supervised")

Cell = tuple[int, str, Settings]


def main() -> None:
    """Measure the missing rows and write the chosen settings."""
    parser = arguments("Settings for the tables of chapter 3.")
    parser.set_defaults(seeds=len(SEEDS), methods=list(ORDER))
    args = parser.parse_args()
    ledger, options = ledger_of(SEARCH, args), options_of(args)
    planned = cells(args.methods, SEEDS[: args.seeds])
    if ledger.missing(key(method, settings, seed) for seed, method, settings in planned):
        images = training_images(subset_for(find_dataset("cifar10"), args))
        split = stratified_split(images.labels, TRAIN_SHARE, HELD_OUT_SEED)
        setting = prepare(images, split, BACKBONE, with_views(options, args.methods), args.device, stored=32)
        side_by_side(args.workers, measure, setting, args, planned, Clock(args.minutes))
    ledger.write_table("Settings for few labels", text)
    print("\n".join(f"{method}: {named(one.settings)} ({one.origin})" for method, one in choose(ledger.rows).items()))


def measure(setting: Setting, args: Namespace, planned: Sequence[Cell], clock: Clock) -> None:
    """Measure the cells that no other process measures."""
    ledger, options = ledger_of(SEARCH, args), options_of(args)
    for seed, method, settings in clock.within_budget(planned):
        ledger.row(key(method, settings, seed), partial(row, setting, method, seed, options, settings))


def training_images(images: ImageSet) -> ImageSet:
    """Return the training images; test images are dropped, so that they cannot be used by mistake."""
    return images.subset(np.flatnonzero(images.split == 0))


def cells(methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Return all cells: cheap methods first, then the most important ones; the second seed comes after all methods."""
    ordered = sorted(methods, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    return [(seed, method, settings) for seed, method in product(seeds, ordered) for settings in CANDIDATES[method]]


def row(setting: Setting, method: str, seed: int, options: AugmentOptions, settings: Settings) -> dict[str, Any]:
    """Return the accuracy on the held-out images; a training with a non-finite loss is stored as failed."""
    given = sample_labels(setting.labels, LABELS, seed)
    try:
        return trained_row(setting, method, given, seed, options, settings)
    except NonFiniteLossError as error:
        return {FAILED: str(error), "method": method, "settings": dict(settings)}


def text(ledger: Ledger) -> str:
    """Return the protocol and the accuracy of every setting."""
    return "\n\n".join(
        [
            f"Accuracy in percent with {LABELS} labels on the {1 - TRAIN_SHARE:.0%} of CIFAR-10's training images that "
            "are held out, mean and standard deviation over seeds that no table uses. No test image is used. The "
            "tables use the chosen settings; methods that replace the game by another labeller use those of the game.",
            search_text(ledger.rows),
        ]
    )


if __name__ == "__main__":
    run_command(main)
