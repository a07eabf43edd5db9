"""Labels needed with each strategy that suggests what to label next.

    python -m experiments.label_suggestions   # digits on one core; about two minutes

A simulated user, who knows the true class, labels one suggested item after the other; no class is known at the start.
The figure is the number of labels after which the game first reaches 90 % of the accuracy that it has with 20 random
labels per class. Each of five seeds draws four fifths of the digits of scikit-learn, and the random labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits

from entourage.io.files import write_text
from entourage.label.active_learning import Strategy, select_items
from entourage.label.incremental import IncrementalTransduction
from entourage.label.transduction import GraphTransduction
from experiments.command import run_command
from experiments.ledger import RESULTS
from experiments.tables import mean_and_spread, table

SEEDS = range(5)
PER_CLASS, FRACTION = 20, 0.9
MAX_LABELS = 400


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


def digits(seed: int) -> Task:
    """Return four fifths of the digits, and the accuracy that is to be reached.

    Args:
        seed: draws the items and the random labels.
    """
    X, classes = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    kept = generator.permutation(len(classes))[: len(classes) * 4 // 5]
    X, classes = X[kept] / 16, classes[kept].astype(np.int64)
    y = np.full(len(classes), -1)
    for name in np.unique(classes):
        y[generator.choice(np.flatnonzero(classes == name), PER_CLASS, replace=False)] = name
    model = GraphTransduction(device="cpu").fit(X, y)
    accuracy = float((model.transduction_ == classes).mean())
    return Task(model.graph_, classes, FRACTION * accuracy)


def labels_needed(task: Task, strategy: Strategy, seed: int, max_labels: int = MAX_LABELS) -> int:
    """Label suggested items until the target is reached.

    Args:
        task: the items.
        strategy: how items are suggested.
        seed: seed of the strategy "random".
        max_labels: the number of labels to stop at.

    Returns:
        The number of labels.
    """
    game = IncrementalTransduction(task.graph)
    codes: dict[int, int] = {}
    confidence = np.zeros(len(task.classes), dtype=np.float32)
    for number in range(1, max_labels + 1):
        excluded = game.given >= 0
        item = select_items(task.graph, excluded, confidence, 1, strategy, seed=seed * max_labels + number)[0][0]
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


def main() -> None:
    """Measure all strategies and write results/label_suggestions.md."""
    tasks = [digits(seed) for seed in SEEDS]
    needed = {
        strategy: [labels_needed(task, strategy, seed) for seed, task in zip(SEEDS, tasks, strict=True)]
        for strategy in get_args(Strategy)
    }
    baseline = float(np.mean(needed["random"]))
    rows = [
        (strategy, mean_and_spread(counts), f"{np.mean(counts) / baseline:.2f}")
        for strategy, counts in sorted(needed.items(), key=lambda entry: float(np.mean(entry[1])))
    ]
    lines = [
        "## Labels needed with each strategy that suggests what to label next",
        "`python -m experiments.label_suggestions`",
        f"Digits of scikit-learn; labels until the game reaches {FRACTION:.0%} of the accuracy of {PER_CLASS} random "
        f"labels per class (on average {np.mean([task.target for task in tasks]):.1%}); mean and standard deviation "
        f"of {len(SEEDS)} seeds. The page of `entourage serve` suggests items by the first strategy.",
        table(("strategy", "labels", "relative to random"), rows),
    ]
    write_text(RESULTS / "label_suggestions.md", "\n\n".join(lines) + "\n")
    print(lines[-1])


if __name__ == "__main__":
    run_command(main)
