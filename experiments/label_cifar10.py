"""Few labels on CIFAR-10: labels of the graph methods, classifiers trained on them, and baselines.

ENTOURAGE_DATA=... python -m experiments.label_cifar10

10, 50, 100 and 250 labels, sampled evenly over the classes by the seed. All networks start from the same
EfficientNet-Lite1 (ImageNet) and train the same layers on the same views. Each method has the settings that
`experiments.label_search` chose on held-out training images, or its defaults. An interrupted run resumes. `--workers`
trains in parallel on one GPU, and several processes may run the command and share the rows.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from entourage.data.datasets.registry import find_dataset
from entourage.data.splits import sample_labels
from entourage.label.semi_supervised.baselines import METHODS
from entourage.report.figures import figure_style, to_svg
from experiments.command import run_command
from experiments.label_rows import (
    Clock,
    Setting,
    arguments,
    fewest_seeds,
    graph_row,
    ledger_of,
    options_of,
    prepare,
    shared_graph,
    subset_for,
    trained_row,
    values,
    with_views,
)
from experiments.label_settings import (
    BALANCED,
    GAME,
    LABELLED,
    LARGER,
    LONGER,
    NEIGHBOURS,
    PROPAGATORS,
    TRAINED,
    VARIANTS,
    check_choices,
    choices_text,
    read_choices,
)
from experiments.ledger import Ledger
from experiments.side_by_side import side_by_side
from experiments.tables import mean_and_spread, measured, missing_note, seeds_note, table

NAME = "label_cifar10"
COUNTS = (10, 50, 100, 250)
VARIED = 50  # labels with which variants of the game are measured
BACKBONE = "efficientnet-lite1"
LARGER_BACKBONE, LARGER_SIZE = "efficientnet-lite2", 224
DRAWN = (*LABELLED, *METHODS, "linear")
THESIS = {10: 57.5, 50: 73.3, 100: 76.4, 250: 79.1}


def main() -> None:
    """Measure the missing rows and write the tables."""
    parser = arguments("Few labels on CIFAR-10.")
    parser.add_argument("--graph-only", action="store_true", help="Measure only rows without training.")
    args = parser.parse_args()
    ledger, clock, options = ledger_of(NAME, args), Clock(args.minutes), options_of(args)
    check_choices(ledger, read_choices(ledger.path.parent))
    images = subset_for(find_dataset("cifar10"), args)
    methods = [] if args.graph_only else args.methods
    regular = [method for method in methods if method != LARGER]
    if regular or args.graph_only:
        setting = prepare(images, images.split, BACKBONE, with_views(options, regular), args.device, stored=32)
        graph_rows(ledger, setting, args.seeds)
        side_by_side(args.workers, trained_rows, setting, args, regular, clock)
    if LARGER in methods:
        larger = options if args.small else replace(options, size=LARGER_SIZE)
        setting = prepare(images, images.split, LARGER_BACKBONE, larger, args.device, stored=32)
        side_by_side(args.workers, trained_rows, setting, args, [LARGER], clock)
    ledger.write_table("Few labels on CIFAR-10", text)
    ledger.write(".svg", figure)


def graph_rows(ledger: Ledger, setting: Setting, seeds: int) -> None:
    """Measure every propagator on the shared graph."""
    names = (BALANCED, *PROPAGATORS)
    cells = list(product(range(seeds), COUNTS, names))
    if not ledger.missing(f"graph/{name}/{count}/{seed}" for seed, count, name in cells):
        return
    w = shared_graph(setting)
    for seed, count, name in cells:
        given = sample_labels(setting.labels, count, seed)
        ledger.row(f"graph/{name}/{count}/{seed}", partial(graph_row, setting, w, name, given))


def trained_cells(methods: Sequence[str], seeds: int) -> list[tuple[str, int, int]]:
    """Return method, number of labels and seed of every row: the game first, then by seed and number of labels.

    Whenever the time is up, all methods but the last have been measured with the same labels. The slowest rows come
    before the others, so that parallel workers end at about the same time.
    """
    every = [cell for cell in product(methods, COUNTS, range(seeds)) if cell[0] not in VARIANTS or cell[1] == VARIED]
    return sorted(every, key=lambda cell: (cell[0] != GAME, cell[0] != LONGER, cell[1] == COUNTS[-1], cell[2]))


def trained_rows(setting: Setting, args: Namespace, methods: Sequence[str], clock: Clock) -> None:
    """Measure every method, except rows that another process measures."""
    ledger, options = ledger_of(NAME, args), options_of(args)
    choices = read_choices(ledger.path.parent)
    for method, count, seed in clock.within_budget(trained_cells(methods, args.seeds)):
        given = sample_labels(setting.labels, count, seed)
        measure = partial(trained_row, setting, method, given, seed, options, choices[method].settings)
        ledger.row(f"{method}/{count}/{seed}", measure)


def text(ledger: Ledger) -> str:
    """Return the tables: labels on one graph, test accuracy, lead of the game, labels after the last round."""
    graph = measured((name, *_row(ledger, f"graph/{name}", "found")) for name in (BALANCED, *PROPAGATORS))
    tested = measured((name, *_row(ledger, name, "accuracy")) for name in (*VARIANTS, *TRAINED))
    others = [name for name in (*VARIANTS, *TRAINED) if name != GAME]
    leads = measured((name, *(_lead(ledger, name, count) for count in COUNTS)) for name in others)
    found = measured((name, *_row(ledger, name, "found")) for name in (*VARIANTS, *LABELLED))
    published = [("thesis, published (DenseNet)", *(f"{THESIS[count]}" for count in COUNTS))] if tested else []
    header = ("method", *(f"{count} labels" for count in COUNTS))
    parts = []
    for title, rows in (
        (
            f"Accuracy on the unlabelled images, in percent, on one graph (k = {NEIGHBOURS}), mean and standard "
            "deviation over seeds:",
            graph,
        ),
        (
            "Test accuracy of the classifier, in percent (in brackets: number of seeds, if fewer than for the game):",
            [*tested, *published],
        ),
        ("Lead of the game over each method, in points, with the same labels:", leads),
        ("Accuracy on the unlabelled training images after the last round, in percent:", found),
    ):
        if rows:
            parts += [title, table(header, rows)]
    names = [name for name, *_ in tested]
    if names:
        seeds = {name: fewest_seeds(ledger, [f"{name}/{count}/" for count in COUNTS]) for name in names}
        missing = [name for name in TRAINED if name not in names]
        parts.append(f"{seeds_note(seeds)} {missing_note(missing)}".strip())
    return "\n\n".join([*parts, *choices_text(read_choices(ledger.path.parent), names)])


def figure(ledger: Ledger) -> str:
    """Draw the test accuracy against the number of labels; methods without rounds are dotted.

    The SVMs, which coincide with the linear classifier, are left out.
    """
    with figure_style():
        drawing = Figure(figsize=(6.4, 4.2))
        axes = drawing.subplots()
        for name in DRAWN:
            cells = {count: seeds for count in COUNTS if (seeds := values(ledger, f"{name}/{count}/", "accuracy"))}
            if cells:
                means = [float(np.mean(seeds)) for seeds in cells.values()]
                spreads = [float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0 for seeds in cells.values()]
                width, style = 2.4 if name == GAME else 1.0, "o-" if name in LABELLED else "o:"
                axes.errorbar(list(cells), means, spreads, fmt=style, markersize=3, linewidth=width, label=name)
        axes.plot(list(THESIS), list(THESIS.values()), "k--", label="thesis (DenseNet)")
        axes.set_xscale("log")
        axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axes.minorticks_off()
        axes.set_xlabel("labels")
        axes.set_ylabel("test accuracy, %")
        axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        drawing.set_layout_engine("tight")
        return to_svg(drawing)


def _lead(ledger: Ledger, name: str, count: int) -> str:
    """Return the accuracy of the game minus that of another method, over their common seeds."""
    cells = [name_of.removeprefix(f"{name}/") for name_of in ledger.rows if name_of.startswith(f"{name}/{count}/")]
    pairs = [(ledger.values(f"{GAME}/{cell}"), ledger.values(f"{name}/{cell}")) for cell in cells]
    leads = [game["accuracy"] - other["accuracy"] for game, other in pairs if game and other]
    return f"{'+' if leads and sum(leads) >= 0 else ''}{mean_and_spread(leads)}"


def _row(ledger: Ledger, name: str, measure: str) -> list[str]:
    return [_cell(ledger, name, count, measure) for count in COUNTS]


def _cell(ledger: Ledger, name: str, count: int, measure: str) -> str:
    """Return the mean over seeds; with fewer seeds than the game, their number, since the means are not comparable."""
    seeds, game = (values(ledger, f"{one}/{count}/", measure) for one in (name, GAME))
    fewer = f" ({len(seeds)})" if 0 < len(seeds) < len(game) else ""
    return mean_and_spread(seeds) + fewer


if __name__ == "__main__":
    run_command(main)
