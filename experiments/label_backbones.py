"""What the pretrained networks know of CIFAR-10: graphs of one backbone or several, and a linear probe with all labels.

ENTOURAGE_DATA=... python -m experiments.label_backbones

10 to 1,000 labels, sampled evenly over the classes by the seed, are labels of the game on a graph of each backbone's
features, of the features of all backbones together, and on the mean of their graphs; no network is trained. The linear
probe is logistic regression on the features with all 50,000 labels: the test accuracy that pretraining on ImageNet
gives without any training of the network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE
from entourage.data.datasets.registry import find_dataset
from entourage.data.splits import sample_labels
from entourage.game import NeighborGraph
from entourage.game.similarity import normalize_rows
from entourage.label.semi_supervised.baselines import frozen_classifier
from experiments.command import run_command
from experiments.label_rows import (
    Setting,
    arguments,
    graph_row,
    ledger_of,
    options_of,
    prepare,
    subset_for,
    values,
    with_views,
)
from experiments.label_settings import BALANCED, NEIGHBOURS
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread, measured, table

NAME = "label_backbones"
COUNTS = (10, 50, 100, 250, 500, 1000)
TOGETHER, MEAN = "features side by side", "mean of the graphs"
COST = 1.0  # inverse strength of the probe's regularisation


def main() -> None:
    """Measure the missing rows and write the table."""
    parser = arguments("Backbones on CIFAR-10.")
    parser.add_argument("--backbones", nargs="+", default=list(EFFICIENTNET_LITE), choices=list(EFFICIENTNET_LITE))
    args = parser.parse_args()
    ledger, images, options = ledger_of(NAME, args), subset_for(find_dataset("cifar10"), args), options_of(args)
    names = [*args.backbones, *(_joined(kind, args.backbones) for kind in (TOGETHER, MEAN) if len(args.backbones) > 1)]
    counts = COUNTS[:2] if args.small else COUNTS
    cells = [(name, count, seed) for seed in range(args.seeds) for count in counts for name in names]
    if ledger.missing([f"probe/{name}" for name in args.backbones] + [_key(*cell) for cell in cells]):
        plain = with_views(options, ())
        settings = [prepare(images, images.split, name, plain, args.device, stored=32) for name in args.backbones]
        graphs = dict(zip(names, _graphs(settings), strict=True))
        for name, count, seed in cells:
            given = sample_labels(settings[0].labels, count, seed)
            ledger.row(_key(name, count, seed), partial(graph_row, settings[0], graphs[name], BALANCED, given))
        for setting in settings:
            ledger.row(f"probe/{setting.backbone}", partial(probe_row, setting))
    ledger.write_table("Backbones on CIFAR-10", text)


def probe_row(setting: Setting) -> dict[str, Any]:
    """Return the test accuracy of logistic regression on the features with all labels."""
    start = time.perf_counter()
    fitted = frozen_classifier("linear", COST).fit(setting.features.cpu().numpy(), setting.labels)
    predicted: NDArray[np.int64] = fitted.predict(setting.test_features.cpu().numpy())
    right = round(100 * float(np.mean(predicted == setting.test_labels)), 3)
    return {"accuracy": right, "seconds": round(time.perf_counter() - start, 1)}


def text(ledger: Ledger) -> str:
    """Return the tables: labels on graphs, and the linear probe."""
    names = list(dict.fromkeys(key.split("/")[1] for key in ledger.rows if key.startswith("graph/")))
    header = ("graph", *(f"{count} labels" for count in COUNTS))
    rows = measured(
        (name, *(mean_and_spread(values(ledger, _key(name, count, ""), "found")) for count in COUNTS)) for name in names
    )
    probes = [
        (key.removeprefix("probe/"), f"{row['accuracy']:.1f}")
        for key, row in ledger.rows.items()
        if key.startswith("probe/")
    ]
    size = (ledger.settings or {}).get("size", "")
    return "\n\n".join(
        [
            f"Accuracy on the unlabelled images, in percent, of the game with class frequencies, k = {NEIGHBOURS}, "
            f"images of {size} pixels, mean and standard deviation over draws of the labels. The networks are "
            "pretrained on ImageNet, and not trained further:",
            table(header, rows),
            "Linear probe: test accuracy in percent of logistic regression on the features with all 50,000 labels:",
            table(("backbone", "accuracy"), probes),
        ]
    )


def _graphs(settings: Sequence[Setting]) -> list[sparse.csr_matrix]:
    """Return the graph of each setting's features and, of several, that of all features and the mean of the graphs."""
    features = [normalize_rows(setting.features) for setting in settings]
    graphs = [NeighborGraph(one, NEIGHBOURS).w for one in features]
    if len(features) == 1:
        return graphs
    together = NeighborGraph(torch.cat(features, dim=1), NEIGHBOURS).w
    return [*graphs, together, sparse.csr_matrix(sum(graphs[1:], graphs[0]) / len(graphs))]


def _joined(kind: str, backbones: Sequence[str]) -> str:
    return f"{' + '.join(backbones)}, {kind}"


def _key(name: str, count: int, seed: int | str) -> str:
    return f"graph/{name}/{count}/{seed}"


if __name__ == "__main__":
    run_command(main)
