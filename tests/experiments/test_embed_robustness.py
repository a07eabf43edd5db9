"""Robustness, the whole way on toys."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments.cells import run_experiment
from experiments.embed_robustness import robustness_experiment
from experiments.embed_trials import Bench, Setting
from experiments.ledger import Ledger

from experiments import embed_robustness


def test_robustness_has_a_table_for_each_figure(
    one_set: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_robustness, "SAMPLES", range(5, 7))
    monkeypatch.setattr(embed_robustness, "ANCHORS", (0, 2))
    monkeypatch.setattr(embed_robustness, "SWEEPS", embed_robustness.SWEEPS[:3])
    experiment = robustness_experiment(one_set)
    ledger = run_experiment(experiment, tmp_path, verbose=False)
    assert not [row for row in ledger.rows.values() if "failed" in row]
    page = (tmp_path / "embed_robustness.md").read_text()
    titles = ("Negative similarities", "Weight decay", "Rounds of the game", "Anchors and samples", "Training and test")
    for title in titles:
        assert f"### {title}" in page
    course = ledger.values("cub200/course/proxy-nca")
    assert course is not None
    assert {name: len(values) for name, values in course.items()} == {
        "training": 5,
        "test": 5,
    }  # the backbone is frozen in the first


def test_what_is_still_to_come_leaves_no_empty_lines(one_set: Bench, tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path, {})
    ledger.add("cub200/weight decay/0.0001/seed 0", {"recall@1": 0.5}, 1.0)
    ledger.add("cub200/anchors 2 of 7/seed 0", {"recall@1": 0.25}, 1.0)
    decay, grid = robustness_experiment(one_set).tables(ledger)
    assert decay.rows == [("weight decay", "cub200"), ("0.0001", "50.0")]
    assert grid.rows[1:] == [("7", "", "", "25.0", "", "")]


def test_epochs_of_a_course_are_those_of_the_backbone(one_set: Bench, tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path, {})
    ledger.add("cub200/course/proxy-nca", {"test": [0.3, 0.5, 0.4], "training": [0.2, 0.6, 0.8]}, 1.0)
    (shown,) = robustness_experiment(one_set).tables(ledger)
    assert shown.rows[1] == ("proxy-nca", "1", "50.0", "40.0", "80.0", "40.0")
    assert "epoch 0 is the one before" in shown.note


def test_every_sweep_changes_the_recipe() -> None:
    base = Setting().recipe
    for sweep in embed_robustness.SWEEPS:
        assert len({sweep.change(base, value) for value in sweep.values}) == len(sweep.values)
