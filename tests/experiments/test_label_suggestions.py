from __future__ import annotations

import numpy as np
from experiments.label_suggestions import Task, digits, labels_needed

from entourage.label import GraphTransduction


def test_digits_are_a_task_with_a_target_below_the_accuracy_of_many_labels() -> None:
    task = digits(0)
    assert task.graph.shape == (1437, 1437)
    assert np.unique(task.classes).tolist() == list(range(10))
    assert 0.8 < task.target < 0.9


def test_the_simulated_user_stops_at_the_target() -> None:
    generator = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 30)
    X = 20 * classes[:, None] + generator.normal(size=(90, 2))
    graph = GraphTransduction().fit(X, np.where(np.arange(90) % 30 == 0, classes, -1)).graph_
    assert labels_needed(Task(graph, classes, 0.99), "coverage", 0) == 3  # one for each group
    assert labels_needed(Task(graph, classes, 2.0), "random", 0, max_labels=5) == 5
