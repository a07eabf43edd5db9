"""The learned rule: where it begins, its symmetries, and the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments.label_learned_rule import (
    EPSILON,
    ITERATIONS,
    Draw,
    LearnedRule,
    Problem,
    accuracy_of,
    draw_labels,
    make_draw,
    make_problem,
    measure,
    text,
    train_rule,
)
from experiments.ledger import Ledger
from sklearn.datasets import make_blobs

from entourage.game.dynamics import replicator
from experiments import label_learned_rule


@pytest.fixture
def problem() -> Problem:
    features, truth = make_blobs(60, centers=3, cluster_std=2.0, random_state=0)
    return make_problem(features, truth.astype(np.int64))


@pytest.fixture
def draw(problem: Problem) -> Draw:
    return make_draw(problem, draw_labels(problem.truth, 2, 0))


def random_rule() -> LearnedRule:
    torch.manual_seed(0)
    rule = LearnedRule()
    torch.nn.init.normal_(rule.out.weight)
    return rule


def test_untrained_rule_is_the_replicator_dynamics(draw: Draw) -> None:
    expected = replicator(draw.w, draw.start, fixed=draw.labelled, max_iter=ITERATIONS, tol=None).x
    torch.testing.assert_close(LearnedRule()(draw)[-1], expected, rtol=0, atol=20 * EPSILON)


def test_rule_does_not_depend_on_the_order_of_classes_and_nodes(draw: Draw) -> None:
    rule = random_rule()
    classes, nodes = torch.tensor([2, 0, 1]), torch.randperm(60, generator=torch.Generator().manual_seed(1))
    permuted = Draw(
        draw.w[nodes][:, nodes],
        draw.start[nodes][:, classes],
        draw.labelled[nodes],
        draw.fixed_inputs[nodes][:, classes],
    )
    expected = rule(draw)[-1][nodes][:, classes]
    torch.testing.assert_close(rule(permuted)[-1], expected, rtol=1e-4, atol=1e-5)


def test_labels_stay_and_rows_are_distributions(draw: Draw) -> None:
    for x in random_rule()(draw):
        assert torch.equal(x[draw.labelled], draw.start[draw.labelled])
        torch.testing.assert_close(x.sum(1), torch.ones(60))


def test_training_returns_the_best_rule_on_validation_tables(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_learned_rule, "subsets", lambda name: [problem])
    monkeypatch.setattr(label_learned_rule, "COUNTS", (2,))
    rule, accuracy = train_rule(0, 20)
    y = draw_labels(problem.truth, 2, 0)
    assert accuracy == accuracy_of(rule, problem, y) >= accuracy_of(LearnedRule(), problem, y)


def test_rows_hold_all_methods_and_the_table_their_means(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features: Any = make_blobs(60, centers=3, cluster_std=2.0, random_state=0)[0]
    monkeypatch.setattr(label_learned_rule, "test_problem", lambda name: (features, problem))
    ledger = Ledger("toy", tmp_path, {})
    for number in range(2):
        ledger.add(f"blobs 5 {number}", measure([LearnedRule()] * 2, "blobs", 5, number), 1.0)
    rows = [values for values in (ledger.values(f"blobs 5 {number}") for number in range(2)) if values is not None]
    assert len(rows) == 2
    assert all(0.5 < value <= 1 for row in rows for value in (row["game"], row["Poisson"], *row["learned rule"]))
    games = [100 * row["game"] for row in rows]
    mean = 100 * np.mean([row["learned rule"] for row in rows])
    page = text(ledger)
    assert f"| mean | {mean:.1f} | {np.mean(games):.1f} |" in page
    assert f"{np.mean(games):.1f} ± {np.std(games, ddof=1):.1f}" in page
