from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from experiments.label_datasets import (
    BINS,
    COUNTS,
    DRAWS,
    OTHERS,
    OURS,
    SETS,
    calibration_gaps,
    cell_calibration_error,
    cell_means,
    cells,
    draw_labels,
    text,
)
from experiments.ledger import Ledger

from entourage.label.ensemble import calibration_error
from experiments import label_datasets


def test_every_class_has_the_number_of_labels() -> None:
    truth = np.arange(90) % 3
    y = draw_labels(truth, 5, 0)
    assert np.bincount(y[y >= 0]).tolist() == [5, 5, 5]
    assert (y[y >= 0] == truth[y >= 0]).all()
    assert (draw_labels(truth, 5, 1) != y).any()


def test_the_calibration_error_of_a_cell_is_that_of_all_its_items() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random((2, 300))
    correct = rng.random((2, 300)) < confidence**2
    rows = [
        {"items": 300, "calibration_gaps": calibration_gaps(*draw)} for draw in zip(correct, confidence, strict=True)
    ]
    assert len(rows[0]["calibration_gaps"]) == BINS
    expected = calibration_error(correct.ravel(), confidence.ravel(), BINS)
    assert cell_calibration_error(rows) == pytest.approx(expected, abs=1e-4)


def test_only_the_best_setting_of_scikit_learn_counts() -> None:
    rows = [
        {"accuracy": {"auto": 0.7, "scikit-learn spreading 7 0.2": a, "scikit-learn spreading 7 0.8": b}}
        for a, b in ((0.9, 0.2), (0.1, 0.6))
    ]
    assert cell_means(rows) == {"auto": pytest.approx(0.7), "scikit-learn, best setting": pytest.approx(0.5)}


def add_cell(ledger: Ledger, cell: str, ours: float, other: float, gap: float, *, checked: bool) -> None:
    for draw in range(DRAWS):
        quality = {
            "items": 100,
            "calibration_gaps": [100 * gap] + [0.0] * (BINS - 1),
            "area_under_roc": 0.8,
            "checked": checked,
            "coverage": [[0.5, 0.9, 0.9], [0.8, 0.85, 0.75], [0.9, 0.8, 0.8], [1.0, 0.7, 0.7]],
        }
        ledger.add(f"{cell} {draw} {OURS}", {"accuracy": {OURS: ours}, **quality}, 1.0)
        ledger.add(f"{cell} {draw} {OTHERS}", {"accuracy": {"game": 0.1, "other": other}, "errors": {}}, 1.0)


def test_the_summary_counts_cells(tmp_path: Path) -> None:
    ledger = Ledger("label_datasets", tmp_path)
    add_cell(ledger, "vehicle 1", 0.50, 0.53, 0.2, checked=False)
    add_cell(ledger, "vehicle 5", 0.60, 0.605, 0.03, checked=True)
    add_cell(ledger, "crx 20", 0.60, 0.68, 0.1, checked=True)
    found = text(ledger)
    assert "the best or within a point of the best other method in 1 of 3 cells, within five points in 2" in found
    assert "6 % or less, or it flags its confidences, in 2 of 3" in found
    assert "flags 1 of 2 cells with a larger error and 0 of 1 of the others" in found
    assert "| vehicle, 1 | 20.0 | yes | 0.80 ± 0.00 | 85 | 75 |" in found


def test_a_cell_requires_both_parts(tmp_path: Path) -> None:
    ledger = Ledger("label_datasets", tmp_path)
    ledger.add(f"vehicle 1 0 {OURS}", {"accuracy": {OURS: 0.5}}, 1.0)
    assert cells(ledger) == {}
    assert set(COUNTS) == {1, 5, 20}
    assert len(SETS) == 8


def test_every_other_method_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("graphlearning")
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + 6 * truth[:, None]
    monkeypatch.setattr(label_datasets, "load", lambda name: (X, X, truth))
    label_datasets._graphlearning_weights.cache_clear()
    y = draw_labels(truth, 5, 0)
    found = dict(label_datasets.others("points", X, y, 2))
    assert sum(name.startswith("graphlearning") for name in found) == 16
    assert sum(name.startswith("scikit-learn") for name in found) == 8
    for name in ("game", "logistic regression", "scikit-learn spreading 7 0.8", "graphlearning laplace"):
        assert (found[name]() == truth).mean() > 0.95, name
    label_datasets._graphlearning_weights.cache_clear()
