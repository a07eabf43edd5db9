from __future__ import annotations

from pathlib import Path

import numpy as np
from experiments.label_suggestions import STRATEGIES, Task, labels_needed, load_task, text
from experiments.ledger import Ledger

from entourage.label import GraphTransduction


def test_digits_are_a_task_with_a_target_below_the_accuracy_of_many_labels() -> None:
    task = load_task("digits", 0)
    assert task.graph.shape == (1437, 1437)
    assert np.unique(task.classes).tolist() == list(range(10))
    assert 0.8 < task.target < 0.9


def test_the_simulated_user_stops_at_the_target() -> None:
    generator = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 30)
    X = 20 * classes[:, None] + generator.normal(size=(90, 2))
    graph = GraphTransduction().fit(X, np.where(np.arange(90) % 30 == 0, classes, -1)).graph_
    assert labels_needed(Task(graph, classes, 0.99), "coverage", 0, max_labels=10) == 3  # one for each group
    assert labels_needed(Task(graph, classes, 2.0), "random", 0, max_labels=5) == 5
    assert labels_needed(Task(graph, classes, 0.99), "random", 0, max_labels=60, step=20) in (20, 40)


def test_the_table_has_the_seeds_of_all_strategies_and_the_best_one_first(tmp_path: Path) -> None:
    ledger = Ledger("label_suggestions", tmp_path, command="test")
    labels = dict.fromkeys(STRATEGIES, 50) | {"random": 40, "coverage": 10, "mixed": 20}
    for seed in range(4):
        for strategy in STRATEGIES:
            ledger.add(f"digits {strategy} {seed}", {"labels": labels[strategy] + seed, "target": 0.8}, 1.0)
    ledger.add("digits coverage 4", {"labels": 100, "target": 0.8}, 1.0)
    page = text(ledger)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:5]] == ["coverage", "mixed", "random"]
    assert "11.5 ± 1.3 | 0.28" in lines[2]
    assert len(lines) == 2 + len(STRATEGIES)
    assert "80.0% of digits, 4 seeds" in page
