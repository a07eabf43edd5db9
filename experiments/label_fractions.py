"""A few percent of labels on Caltech-101 (thesis, chapter 3).

ENTOURAGE_DATA=... python -m experiments.label_fractions

2, 5 and 10 percent of each class are labelled, at least one image; the seed samples them and the split (70 % training,
30 % testing). The tables have accuracy and macro-averaged F score on the test images for two backbones; the figure has
the relative improvement over training on the labelled images only. Each method has the settings that
`experiments.label_search` chose on CIFAR-10, or its defaults. `--workers` trains in parallel on one GPU, and several
processes may run the command and share the rows.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from entourage.data.datasets.registry import find_dataset
from entourage.data.splits import sample_labels, stratified_split
from entourage.report.figures import figure_style, to_svg
from experiments.command import run_command
from experiments.label_rows import (
    Clock,
    Setting,
    arguments,
    fewest_seeds,
    ledger_of,
    options_of,
    prepare,
    subset_for,
    trained_row,
    values,
    with_views,
)
from experiments.label_settings import GAME, LABELLED, TRAINED, check_choices, choices_text, read_choices
from experiments.ledger import Ledger
from experiments.side_by_side import side_by_side
from experiments.tables import mean_and_spread, measured, missing_note, seeds_note, table

NAME = "label_fractions"
SHARES = (0.02, 0.05, 0.10)
BACKBONES = ("efficientnet-lite0", "efficientnet-lite1")
TRAIN_SHARE = 0.7
SIDE = 128  # width and height at which images are decoded


def main() -> None:
    """Measure the missing rows, write the tables and draw the figure."""
    args = arguments("A few percent of labels on Caltech-101.").parse_args()
    ledger, clock, options = ledger_of(NAME, args), Clock(args.minutes), options_of(args)
    check_choices(ledger, read_choices(ledger.path.parent))
    images = subset_for(find_dataset("caltech101"), args)
    cells = list(product(args.methods, SHARES))
    for seed, backbone in product(range(args.seeds), BACKBONES):
        if not ledger.missing(_key(backbone, *cell, seed) for cell in cells):
            continue  # all rows are stored, or other processes measure them
        split = stratified_split(images.labels, TRAIN_SHARE, seed)
        setting = prepare(images, split, backbone, with_views(options, args.methods), args.device, stored=SIDE)
        side_by_side(args.workers, trained_rows, setting, args, cells, seed, clock)
    ledger.write_table("A few percent of labels on Caltech-101", text)
    ledger.write(".svg", figure)


def trained_rows(
    setting: Setting, args: Namespace, cells: Sequence[tuple[str, float]], seed: int, clock: Clock
) -> None:
    """Measure every method with every fraction of labels, except rows that another process measures."""
    ledger, options = ledger_of(NAME, args), options_of(args)
    choices = read_choices(ledger.path.parent)
    for method, share in clock.within_budget(cells):
        given = sample_labels(setting.labels, share, seed)
        measure = partial(trained_row, setting, method, given, seed, options, choices[method].settings)
        ledger.row(_key(setting.backbone, method, share, seed), measure)


def text(ledger: Ledger) -> str:
    """Return the tables of accuracy and macro F for each backbone."""
    header = ("method", *(f"{share:.0%} labelled" for share in SHARES))
    parts = []
    for backbone, (measure, title) in product(BACKBONES, (("accuracy", "Accuracy"), ("macro_f", "Macro F"))):
        rows = measured(
            (name, *(_cell(ledger, backbone, name, share, measure) for share in SHARES)) for name in TRAINED
        )
        if rows:
            parts += [f"{title} on the test images, in percent, {backbone}:", table(header, rows)]
    methods = [name for name in TRAINED if any(f"/{name}/" in key for key in ledger.rows)]
    if methods:
        cells = list(product(BACKBONES, SHARES))
        places = {name: [_key(backbone, name, share, "") for backbone, share in cells] for name in methods}
        parts.append(seeds_note({name: fewest_seeds(ledger, places[name]) for name in methods}))
        missing = [name for name in (*LABELLED, "supervised") if name not in methods]
        parts += [missing_note(missing)] if missing else []
    return "\n\n".join([*parts, *choices_text(read_choices(ledger.path.parent), methods)])


def figure(ledger: Ledger) -> str:
    """Draw the relative improvement over the supervised network, for each labeller, as in the thesis."""
    with figure_style():
        drawing = Figure(figsize=(9, 3.4))
        for axes, backbone in zip(drawing.subplots(1, len(BACKBONES), sharey=True), BACKBONES, strict=True):
            for name in LABELLED:
                gains = [_gain(ledger, backbone, name, share) for share in SHARES]
                if np.isnan(gains).all():
                    continue  # not measured yet
                width = 2.4 if name == GAME else 1.0
                axes.plot([f"{share:.0%}" for share in SHARES], gains, "o-", markersize=4, linewidth=width, label=name)
            axes.set_title(backbone)
            axes.set_xlabel("labelled")
        drawing.axes[0].set_ylabel("better than the supervised network, %")
        drawing.axes[-1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        drawing.set_layout_engine("tight")
        return to_svg(drawing)


def _gain(ledger: Ledger, backbone: str, name: str, share: float) -> float:
    method, supervised = (values(ledger, _key(backbone, one, share, ""), "accuracy") for one in (name, "supervised"))
    return 100 * (float(np.mean(method)) / float(np.mean(supervised)) - 1) if method and supervised else float("nan")


def _cell(ledger: Ledger, backbone: str, name: str, share: float, measure: str) -> str:
    return mean_and_spread(values(ledger, _key(backbone, name, share, ""), measure))


def _key(backbone: str, method: str, share: float, seed: int | str) -> str:
    return f"{backbone}/{method}/{share}/{seed}"


if __name__ == "__main__":
    run_command(main)
