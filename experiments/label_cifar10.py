"""Few labels on CIFAR-10: the graph's labels, and classifiers trained on them, beside their rivals.

ENTOURAGE_DATA=... python -m experiments.label_cifar10

10, 50, 100 and 250 labels, drawn evenly over the classes by the seed. All networks start from the same
EfficientNet-Lite1 (ImageNet) and train the same layers on the same views; the settings of each are those that
`experiments.label_search` chose for it on training images that it held out, the defaults where it has not been run.
Rows that are there already are kept; a stopped run goes on. Several processes may run the command side by side and
share the rows.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from entourage.data import draw_labels, find_dataset
from experiments.command import run_command
from experiments.label_rows import (
    Clock,
    arguments,
    device_of,
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
    LABELLED,
    PROPAGATORS,
    TRAINED,
    check_choices,
    choices_text,
    read_choices,
)
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread, measured, table

COUNTS = (10, 50, 100, 250)
BACKBONE = "efficientnet-lite1"
THESIS = ("57.5", "73.3", "76.4", "79.1")


def main() -> None:
    """Finds the rows that are missing and writes the tables."""
    told = arguments("Few labels on CIFAR-10").parse_args()
    ledger, clock = ledger_of("label_cifar10", told), Clock(told.minutes)
    options, choices = options_of(told), read_choices(ledger.path.parent)
    check_choices(ledger, choices)
    images = rehearsal(find_dataset("cifar10"), told)
    methods = [] if told.graph_only else told.methods
    setting = prepare(images, images.split, BACKBONE, with_views(options, methods), device_of(told), stored=32)
    w = shared_graph(setting)
    cells = list(product(range(told.seeds), COUNTS))
    for seed, count in cells:
        given = draw_labels(setting.labels, count, seed)
        for name in (BALANCED, *PROPAGATORS):
            ledger.row(f"graph/{name}/{count}/{seed}", partial(graph_row, setting, w, name, given))
    for method, (seed, count) in clock.until_late(list(product(methods, cells))):
        given = draw_labels(setting.labels, count, seed)
        find = partial(trained_row, setting, method, given, seed, options, choices[method].settings)
        ledger.row(f"{method}/{count}/{seed}", find)
    ledger.write_table("Few labels on CIFAR-10", text)


def text(ledger: Ledger) -> str:
    """Three tables: labels found on one graph, test accuracy of the classifiers, labels found after the last round."""
    graph = measured((name, *_row(ledger, f"graph/{name}", "found")) for name in (BALANCED, *PROPAGATORS))
    tested = measured((name, *_row(ledger, name, "accuracy")) for name in TRAINED)
    found = measured((name, *_row(ledger, name, "found")) for name in LABELLED)
    published = [("the thesis' (DenseNet, published)", *THESIS)] if tested else []
    header = ("method", *(f"{count} labels" for count in COUNTS))
    parts = []
    for title, rows in (
        ("Unlabelled images labelled right, in percent, on one graph (k = 20), mean and spread over seeds:", graph),
        ("Test accuracy of the classifier, in percent:", [*tested, *published]),
        ("Unlabelled training images labelled right after the last round, in percent:", found),
    ):
        if rows:
            parts += [title, table(header, rows)]
    return "\n\n".join([*parts, *choices_text(read_choices(ledger.path.parent), [name for name, *_ in tested])])


def _row(ledger: Ledger, name: str, what: str) -> list[str]:
    cells = [values(ledger, f"{name}/{count}/", what) for count in COUNTS]
    return [mean_and_spread(cell) for cell in cells]


if __name__ == "__main__":
    run_command(main)
