"""Which settings each method of chapter 3 gets, found without a look at any test image.

ENTOURAGE_DATA=... python -m experiments.label_search

A tenth of CIFAR-10's training images is held out: nothing is trained on it, and accuracy is measured on it alone. Every
method is tried with four settings (see `experiments.label_settings`), with 50 labels, which are drawn by other seeds
than those of the tables. The setting with the best mean is what `experiments.label_cifar10` and
`experiments.label_fractions` take. Rows that are there already are kept; a stopped run goes on, and several processes
may run the command side by side and share the rows.
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
    rehearsal,
    trained_row,
    with_views,
)
from experiments.label_settings import CANDIDATES, GAME, SEARCH, Settings, choose, key, named, search_text
from experiments.ledger import FAILED, Ledger
from experiments.side_by_side import side_by_side

LABELS = 50
SEEDS = (100, 101)  # the tables have 0 and up
TRAIN_SHARE, HELD_OUT_SEED = 0.9, 1000
ORDER = (*FROZEN, GAME, "fixmatch", "mean-teacher", "vat", "pseudo-label", "pi-model", "supervised")

Cell = tuple[int, str, Settings]


def main() -> None:
    """Measures what is missing and writes what was chosen."""
    parser = arguments("Settings for the tables of chapter 3")
    parser.set_defaults(seeds=len(SEEDS), methods=list(ORDER))
    told = parser.parse_args()
    ledger, options = ledger_of(SEARCH, told), options_of(told)
    planned = cells(told.methods, SEEDS[: told.seeds])
    if ledger.free(key(method, settings, seed) for seed, method, settings in planned):
        images = training_images(rehearsal(find_dataset("cifar10"), told))
        split = stratified_split(images.labels, TRAIN_SHARE, HELD_OUT_SEED)
        setting = prepare(images, split, BACKBONE, with_views(options, told.methods), told.device, stored=32)
        side_by_side(told.workers, measure, setting, told, planned, Clock(told.minutes))
    ledger.write_table("Settings for few labels", text)
    print("\n".join(f"{method}: {named(one.settings)} ({one.origin})" for method, one in choose(ledger.rows).items()))


def measure(setting: Setting, told: Namespace, planned: Sequence[Cell], clock: Clock) -> None:
    """Measures those cells that no other process is at."""
    ledger, options = ledger_of(SEARCH, told), options_of(told)
    for seed, method, settings in clock.until_late(planned):
        ledger.row(key(method, settings, seed), partial(row, setting, method, seed, options, settings))


def training_images(images: ImageSet) -> ImageSet:
    """The training images: what is left out cannot be looked at by mistake."""
    return images.subset(np.flatnonzero(images.split == 0))


def cells(methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """All that is measured: what is cheap first, then what matters most, and a second seed when all have had one."""
    ordered = sorted(methods, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    return [(seed, method, settings) for seed, method in product(seeds, ordered) for settings in CANDIDATES[method]]


def row(setting: Setting, method: str, seed: int, options: AugmentOptions, settings: Settings) -> dict[str, Any]:
    """Accuracy on what was held out; a training whose loss is not finite is kept as a failure."""
    given = sample_labels(setting.labels, LABELS, seed)
    try:
        return trained_row(setting, method, given, seed, options, settings)
    except NonFiniteLossError as error:
        return {FAILED: str(error), "method": method, "settings": dict(settings)}


def text(ledger: Ledger) -> str:
    """How it was measured, and the accuracy of every setting."""
    return "\n\n".join(
        [
            f"Accuracy in percent with {LABELS} labels on the {1 - TRAIN_SHARE:.0%} of CIFAR-10's training images that "
            "no method was trained on, mean and spread over seeds that no table has. No test image was looked at. The "
            "chosen settings are those of the tables; what labels in the game's place has the game's.",
            search_text(ledger.rows),
        ]
    )


if __name__ == "__main__":
    run_command(main)
