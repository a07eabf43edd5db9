"""Few labels on CIFAR-10: the graph's labels, and classifiers trained on them, beside their rivals.

ENTOURAGE_DATA=... python -m experiments.label_cifar10

10, 50, 100 and 250 labels, drawn evenly over the classes by the seed. All networks start from the same
EfficientNet-Lite1 (ImageNet) and train the same layers on the same views; the settings of each are those that
`experiments.label_search` chose for it on training images that it held out, the defaults where it has not been run.
Rows that are there already are kept; a stopped run goes on. `--workers` trains side by side on one GPU, and several
processes may run the command and share the rows.
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
    rehearsal,
    shared_graph,
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
from experiments.tables import mean_and_spread, measured, missing_told, seeds_told, table

NAME = "label_cifar10"
COUNTS = (10, 50, 100, 250)
VARIED = 50  # labels with which the game is also played in other ways
BACKBONE = "efficientnet-lite1"
LARGER_BACKBONE, LARGER_SIZE = "efficientnet-lite2", 224
DRAWN = (*LABELLED, *METHODS, "linear")
THESIS = {10: 57.5, 50: 73.3, 100: 76.4, 250: 79.1}


def main() -> None:
    """Finds the rows that are missing and writes the tables."""
    parser = arguments("Few labels on CIFAR-10")
    parser.add_argument("--graph-only", action="store_true", help="only the rows that need no training")
    told = parser.parse_args()
    ledger, clock, options = ledger_of(NAME, told), Clock(told.minutes), options_of(told)
    check_choices(ledger, read_choices(ledger.path.parent))
    images = rehearsal(find_dataset("cifar10"), told)
    methods = [] if told.graph_only else told.methods
    usual = [method for method in methods if method != LARGER]
    if usual or told.graph_only:
        setting = prepare(images, images.split, BACKBONE, with_views(options, usual), told.device, stored=32)
        graph_rows(ledger, setting, told.seeds)
        side_by_side(told.workers, trained_rows, setting, told, usual, clock)
    if LARGER in methods:
        larger = options if told.small else replace(options, size=LARGER_SIZE)
        setting = prepare(images, images.split, LARGER_BACKBONE, larger, told.device, stored=32)
        side_by_side(told.workers, trained_rows, setting, told, [LARGER], clock)
    ledger.write_table("Few labels on CIFAR-10", text)
    ledger.write(".svg", figure)


def graph_rows(ledger: Ledger, setting: Setting, seeds: int) -> None:
    """What every propagator finds on one graph."""
    names = (BALANCED, *PROPAGATORS)
    cells = list(product(range(seeds), COUNTS, names))
    if not ledger.free(f"graph/{name}/{count}/{seed}" for seed, count, name in cells):
        return
    w = shared_graph(setting)
    for seed, count, name in cells:
        given = sample_labels(setting.labels, count, seed)
        ledger.row(f"graph/{name}/{count}/{seed}", partial(graph_row, setting, w, name, given))


def trained_cells(methods: Sequence[str], seeds: int) -> list[tuple[str, int, int]]:
    """Return method, number of labels and seed of every row: the game first, then by seed and number of labels.

    So whenever time is up, methods have been measured with the same labels, but for the last ones. What takes much
    longer than the others begins before them, so that nobody waits for it in the end.
    """
    every = [cell for cell in product(methods, COUNTS, range(seeds)) if cell[0] not in VARIANTS or cell[1] == VARIED]
    return sorted(every, key=lambda cell: (cell[0] != GAME, cell[0] != LONGER, cell[1] == COUNTS[-1], cell[2]))


def trained_rows(setting: Setting, told: Namespace, methods: Sequence[str], clock: Clock) -> None:
    """What every method comes to, as far as no other process is at it."""
    ledger, options = ledger_of(NAME, told), options_of(told)
    choices = read_choices(ledger.path.parent)
    for method, count, seed in clock.until_late(trained_cells(methods, told.seeds)):
        given = sample_labels(setting.labels, count, seed)
        find = partial(trained_row, setting, method, given, seed, options, choices[method].settings)
        ledger.row(f"{method}/{count}/{seed}", find)


def text(ledger: Ledger) -> str:
    """Labels found on one graph, test accuracy of the classifiers, the game's lead, labels found in the last round."""
    graph = measured((name, *_row(ledger, f"graph/{name}", "found")) for name in (BALANCED, *PROPAGATORS))
    tested = measured((name, *_row(ledger, name, "accuracy")) for name in (*VARIANTS, *TRAINED))
    others = [name for name in (*VARIANTS, *TRAINED) if name != GAME]
    leads = measured((name, *(_lead(ledger, name, count) for count in COUNTS)) for name in others)
    found = measured((name, *_row(ledger, name, "found")) for name in (*VARIANTS, *LABELLED))
    published = [("the thesis' (DenseNet, published)", *(f"{THESIS[count]}" for count in COUNTS))] if tested else []
    header = ("method", *(f"{count} labels" for count in COUNTS))
    parts = []
    for title, rows in (
        (
            f"Unlabelled images labelled right, in percent, on one graph (k = {NEIGHBOURS}), mean and spread over "
            "seeds:",
            graph,
        ),
        (
            "Test accuracy of the classifier, in percent (in brackets: over how many seeds, where the game has more):",
            [*tested, *published],
        ),
        ("How far the game is ahead of each, in points, with the same draws of labels:", leads),
        ("Unlabelled training images labelled right after the last round, in percent:", found),
    ):
        if rows:
            parts += [title, table(header, rows)]
    names = [name for name, *_ in tested]
    if names:
        seeds = {name: fewest_seeds(ledger, [f"{name}/{count}/" for count in COUNTS]) for name in names}
        missing = [name for name in TRAINED if name not in names]
        parts.append(f"{seeds_told(seeds)} {missing_told(missing)}".strip())
    return "\n\n".join([*parts, *choices_text(read_choices(ledger.path.parent), names)])


def figure(ledger: Ledger) -> str:
    """Test accuracy against the number of labels, with the spread over draws; dotted is what plays no rounds.

    The SVMs, which lie on the linear classifier, are left out.
    """
    with figure_style():
        drawing = Figure(figsize=(6.4, 4.2))
        axes = drawing.subplots()
        for name in DRAWN:
            cells = {count: found for count in COUNTS if (found := values(ledger, f"{name}/{count}/", "accuracy"))}
            if cells:
                means = [float(np.mean(found)) for found in cells.values()]
                spreads = [float(np.std(found, ddof=1)) if len(found) > 1 else 0.0 for found in cells.values()]
                width, style = 2.4 if name == GAME else 1.0, "o-" if name in LABELLED else "o:"
                axes.errorbar(list(cells), means, spreads, fmt=style, markersize=3, linewidth=width, label=name)
        axes.plot(list(THESIS), list(THESIS.values()), "k--", label="the thesis'")
        axes.set_xscale("log")
        axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axes.minorticks_off()
        axes.set_xlabel("labels")
        axes.set_ylabel("right on test images, %")
        axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        drawing.set_layout_engine("tight")
        return to_svg(drawing)


def _lead(ledger: Ledger, name: str, count: int) -> str:
    """The game's accuracy less another's, over the seeds that both were measured with."""
    places = [name_of.removeprefix(f"{name}/") for name_of in ledger.rows if name_of.startswith(f"{name}/{count}/")]
    pairs = [(ledger.values(f"{GAME}/{place}"), ledger.values(f"{name}/{place}")) for place in places]
    leads = [game["accuracy"] - other["accuracy"] for game, other in pairs if game and other]
    return f"{'+' if leads and sum(leads) >= 0 else ''}{mean_and_spread(leads)}"


def _row(ledger: Ledger, name: str, what: str) -> list[str]:
    return [_cell(ledger, name, count, what) for count in COUNTS]


def _cell(ledger: Ledger, name: str, count: int, what: str) -> str:
    """The mean over seeds; means over others than the game's are not to be compared with it, so it is said."""
    found, game = (values(ledger, f"{one}/{count}/", what) for one in (name, GAME))
    fewer = f" ({len(found)})" if 0 < len(found) < len(game) else ""
    return mean_and_spread(found) + fewer


if __name__ == "__main__":
    run_command(main)
