"""Few labels on CIFAR-10: the graph's labels, and classifiers trained on them, beside their rivals.

ENTOURAGE_DATA=... python -m experiments.label_cifar10

10, 50, 100 and 250 labels, drawn evenly over the classes by the seed. All networks start from the same
EfficientNet-Lite1 (ImageNet), train the same layers on the same views, and make the same number of steps. Rows that are
there already are kept; a stopped run goes on. Several processes may run the command side by side and share the rows.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from entourage.data import draw_labels, find_dataset
from experiments.label_rows import (
    OPTIONS,
    PROPAGATORS,
    TRAINED,
    Clock,
    arguments,
    device_of,
    graph_row,
    prepare,
    rehearsal,
    shared_graph,
    trained_row,
    values,
)
from experiments.ledger import RESULTS, Ledger
from experiments.tables import mean_and_spread, table

COUNTS = (10, 50, 100, 250)
BACKBONE = "efficientnet-lite1"
THESIS = ("57.5", "73.3", "76.4", "79.1")


def main() -> None:
    """Finds the rows that are missing and writes the tables."""
    options = arguments("Few labels on CIFAR-10").parse_args()
    ledger, clock = Ledger("label_cifar10", options.results or RESULTS), Clock(options.minutes)
    images = rehearsal(find_dataset("cifar10"), options.few)
    setting = prepare(images, images.split, BACKBONE, options.size, device_of(options), stored=32)
    w = shared_graph(setting)
    cells = list(product(range(options.seeds), COUNTS))
    for seed, count in cells:
        given = draw_labels(setting.labels, count, seed)
        for name in PROPAGATORS:
            ledger.row(f"graph/{name}/{count}/{seed}", partial(graph_row, setting, w, name, given))
    methods = [] if options.graph_only else options.methods
    for method, (seed, count) in clock.until_late(list(product(methods, cells))):
        given = draw_labels(setting.labels, count, seed)
        ledger.row(f"{method}/{count}/{seed}", partial(trained_row, setting, method, given, seed, OPTIONS))
    ledger.write_table("Few labels on CIFAR-10", text)


def text(ledger: Ledger) -> str:
    """Three tables: labels found on one graph, test accuracy of the classifiers, labels found after the last round."""
    graph = [(name, *_row(ledger, f"graph/{name}", "found")) for name in PROPAGATORS]
    tested = [(name, *_row(ledger, name, "accuracy")) for name in TRAINED]
    found = [(name, *_row(ledger, name, "found")) for name in TRAINED if name.endswith("+network")]
    header = ("method", *(f"{count} labels" for count in COUNTS))
    return "\n\n".join(
        [
            "Unlabelled images labelled right, in percent, on one graph (k = 20), mean and spread over seeds:",
            table(header, graph),
            "Test accuracy of the classifier, in percent:",
            table(header, [*tested, ("the thesis' (DenseNet, published)", *THESIS)]),
            "Unlabelled training images labelled right after the last round, in percent:",
            table(header, found),
        ]
    )


def _row(ledger: Ledger, name: str, what: str) -> list[str]:
    cells = [values(ledger, f"{name}/{count}/", what) for count in COUNTS]
    return [mean_and_spread(cell) for cell in cells]


if __name__ == "__main__":
    main()
