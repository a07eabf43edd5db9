"""Labels needed with each strategy that suggests what to label next.

    python -m experiments.label_suggestions                        # digits; about three minutes on one core
    ENTOURAGE_DATA=... python -m experiments.label_suggestions --sets caltech101 --minutes 9    # repeat until complete

A simulated user, who knows the true class, labels the suggested items; no class is known at the start. The figure is
the number of labels after which the game first reaches 90 % of its accuracy with 20 random labels per class.
Each of five seeds draws four fifths of the items, and the random labels. Of digits, one item is suggested at a time, of
Caltech-101 ten, so that the game is played once for ten labels. Images are features of EfficientNet-Lite1 of length 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits

from entourage.backbones.features import default_cache_dir
from entourage.data.datasets.registry import find_dataset
from entourage.embed.index.embedder import Embedder
from entourage.io.files import atomic_path
from entourage.label.active_learning import Strategy, select_items
from entourage.label.incremental import IncrementalTransduction
from entourage.label.transduction import GraphTransduction
from experiments.command import run_command
from experiments.ledger import Ledger, ledger_of
from experiments.tables import mean_and_spread, measured, table

NAME = "label_suggestions"
SEEDS = range(5)
PER_CLASS, FRACTION = 20, 0.9
BACKBONE = "efficientnet-lite1"
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Data = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class Task:
    """A graph of items with known classes.

    Attributes:
        graph: similarities, shape (n, n).
        classes: true class of each item, shape (n,).
        target: the accuracy to reach.
    """

    graph: sparse.csr_matrix
    classes: NDArray[np.int64]
    target: float


@dataclass(frozen=True)
class DataSet:
    """A data set of the comparison.

    Attributes:
        title: its name in the table.
        load: returns features, shape (n, d), and classes, shape (n,).
        step: number of items that are suggested at a time.
        max_labels: the number of labels to stop at.
    """

    title: str
    load: Callable[[], Data]
    step: int
    max_labels: int


def main() -> None:
    """Measure the missing rows and write the table."""
    parser = argparse.ArgumentParser(description="Labels needed with each strategy")
    parser.add_argument("--sets", default="digits", help="Names of data sets, separated by commas.")
    parser.add_argument("--minutes", type=float, default=1e9, help="Start no row after these minutes.")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results.")
    options = parser.parse_args()
    unknown = [name for name in options.sets.split(",") if name not in SETS]
    if unknown:
        raise ValueError(f"--sets: {', '.join(unknown)}; expected some of {', '.join(SETS)}")
    ledger = ledger_of(NAME, options.results)
    end = time.monotonic() + 60 * options.minutes
    for name in options.sets.split(","):
        for seed in SEEDS:
            for strategy in STRATEGIES:
                if time.monotonic() < end:
                    ledger.row(f"{name} {strategy} {seed}", partial(measure, name, strategy, seed))
    ledger.write_table("Labels needed with each strategy that suggests what to label next", text)


def measure(name: str, strategy: Strategy, seed: int) -> dict[str, Any]:
    """Measure one strategy with one seed: the number of labels, and the accuracy that they reach."""
    task, data = load_task(name, seed), SETS[name]
    labels = labels_needed(task, strategy, seed, max_labels=data.max_labels, step=data.step)
    return {"labels": labels, "target": task.target}


@cache
def load_task(name: str, seed: int) -> Task:
    """Return four fifths of a data set, and the accuracy that is to be reached.

    Args:
        name: name of the data set.
        seed: draws the items and the random labels.
    """
    X, classes = SETS[name].load()
    generator = np.random.default_rng(seed)
    kept = generator.permutation(len(classes))[: len(classes) * 4 // 5]
    X, classes = X[kept], classes[kept].astype(np.int64)
    y = np.full(len(classes), -1)
    for code in np.unique(classes):
        members = np.flatnonzero(classes == code)
        y[generator.choice(members, min(PER_CLASS, len(members)), replace=False)] = code
    model = GraphTransduction(device="cpu").fit(X, y)
    accuracy = float((model.transduction_ == classes).mean())
    return Task(model.graph_, classes, FRACTION * accuracy)


def _digits() -> Data:
    X, classes = load_digits(return_X_y=True)
    return X / 16, classes


@cache
def _caltech101() -> Data:
    """Return features and classes of Caltech-101; the features are stored in the cache."""
    path = default_cache_dir() / f"{NAME}_caltech101_{BACKBONE}.npz"
    if not path.exists():
        images = find_dataset("caltech101")
        embedder = Embedder.load(BACKBONE, device="cpu")
        batches = [(batch.indices, batch.features) for batch in embedder.stream(images.source)]
        rows = np.concatenate([indices for indices, _ in batches])
        X = np.concatenate([features for _, features in batches])
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, X=X, classes=np.asarray(images.labels)[rows])
    with np.load(path, allow_pickle=False) as file:
        return file["X"], file["classes"]


def labels_needed(task: Task, strategy: Strategy, seed: int, *, max_labels: int, step: int = 1) -> int:
    """Label suggested items until the target is reached.

    Args:
        task: the items.
        strategy: how items are suggested.
        seed: seed of the strategy "random".
        max_labels: the number of labels to stop at.
        step: number of items that are suggested at a time.

    Returns:
        The number of labels.
    """
    game = IncrementalTransduction(task.graph)
    codes: dict[int, int] = {}
    confidence = np.zeros(len(task.classes), dtype=np.float32)
    for number in range(step, max_labels + 1, step):
        excluded = game.given >= 0
        chosen = select_items(task.graph, excluded, confidence, step, strategy, seed=seed * max_labels + number)
        for item, _ in chosen:
            name = int(task.classes[item])
            if name not in codes:
                codes[name] = game.add_class()
            game.set_labels([item], codes[name])
        found = game.play()
        confidence = found.confidence
        names = np.array(list(codes))
        if (np.where(found.codes >= 0, names[found.codes], -1) == task.classes).mean() >= task.target:
            return number
    return max_labels


SETS = {
    "digits": DataSet("digits", _digits, 1, 400),
    "caltech101": DataSet("Caltech-101", _caltech101, 10, 3000),
}


def text(ledger: Ledger) -> str:
    """Return the description and the table, of the seeds of a data set that are measured with every strategy."""
    needed: dict[tuple[str, str], list[dict[str, Any]]] = {}
    seeds = dict[str, int]()
    for name, data in SETS.items():
        rows = {seed: [ledger.values(f"{name} {strategy} {seed}") for strategy in STRATEGIES] for seed in SEEDS}
        complete = [found for found in rows.values() if None not in found]
        if complete:
            seeds[data.title] = len(complete)
            for position, strategy in enumerate(STRATEGIES):
                needed[data.title, strategy] = [row for found in complete if (row := found[position]) is not None]
    titles = list(dict.fromkeys(title for title, _ in needed))
    mean = {key: float(np.mean([row["labels"] for row in rows])) for key, rows in needed.items()}
    relative = {key: mean[key] / mean[key[0], "random"] for key in mean if (key[0], "random") in mean}
    worst = {one: max((relative[key] for key in relative if key[1] == one), default=9.0) for one in STRATEGIES}
    lines: list[tuple[str, ...]] = []
    for strategy in sorted(STRATEGIES, key=lambda one: worst[one]):
        cells: list[str] = [strategy]
        for title in titles:
            key = (title, strategy)
            counts = [row["labels"] for row in needed.get(key, ())]
            cells += [mean_and_spread(counts), f"{relative[key]:.2f}" if key in relative else ""]
        lines.append(tuple(cells))
    targets = {title: float(np.mean([row["target"] for row in needed[title, "random"]])) for title in titles}
    shown = ", ".join(f"{target:.1%} of {title}, {seeds[title]} seeds" for title, target in targets.items())
    header = ("strategy", *(cell for title in titles for cell in (f"{title}, labels", "relative to random")))
    return (
        f"Labels until the game reaches {FRACTION:.0%} of the accuracy of {PER_CLASS} random labels per class (on "
        f"average {shown}); mean and standard deviation over the seeds. The first strategy, whose largest ratio to "
        f"random order is the smallest, is the default of `entourage serve`.\n\n{table(header, measured(lines))}"
    )


if __name__ == "__main__":
    run_command(main)
