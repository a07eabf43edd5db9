from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from experiments.cluster_table_methods import BASELINES, NETWORK, ari, row_of
from experiments.cluster_table_sets import NAMED, SETS, labelled_set, named_table
from experiments.ledger import Ledger

from experiments import cluster_tables


def test_there_are_at_least_forty_sets_of_finite_values_in_two_halves() -> None:
    sets = [labelled_set(name) for name in SETS]
    assert len(sets) >= 40
    assert sum(one.half == "test" for one in sets) == len(sets) // 2
    for one in sets:
        assert np.isfinite(one.X).all()
        assert len(one.X) == len(one.labels) <= 1500
        known = set(one.labels.tolist()) - {-1}
        assert known == set(range(len(known)))
    assert {one.X.shape[1] for one in sets} >= {1, 2, 3, 10, 50, 64}


def test_the_named_tables_of_scikit_learn_have_all_their_columns() -> None:
    shapes = [named_table(name).X.shape for name in NAMED[:4]]
    assert shapes == [(150, 4), (178, 13), (569, 30), (1797, 64)]


def test_background_items_are_not_scored() -> None:
    assert ari(np.array([0, 0, 1, 1, -1]), np.array([3, 3, 5, 5, 5])) == 1


@pytest.mark.parametrize("method", BASELINES)
def test_every_setting_of_the_other_methods_is_measured(method: str) -> None:
    row = row_of(BASELINES[method], labelled_set("hepta"))
    assert (row["true_k"], row["n"]) == (7, 210)
    assert max(one["ari"] for one in row["settings"].values()) > 0.9
    assert all(1 <= one["k"] <= 25 for one in row["settings"].values())


def test_the_setting_is_selected_on_the_tuning_half_only(tmp_path: Path) -> None:
    ledger = Ledger("cluster_tables", tmp_path, command="test")
    for i, name in enumerate(SETS):
        half, good = labelled_set(name).half, "a" if i % 2 == 0 else "b"
        settings = {s: {"ari": float(s == good), "k": 2, "given": 0.5} for s in "ab"}
        for method in (*BASELINES, NETWORK):
            ledger.add(f"{method}: {name}", {"half": half, "true_k": 2, "n": 9, "settings": settings}, 0.0)
    assert cluster_tables.best_setting(ledger, "HDBSCAN") == "a"
    ledger.add("overlap: fifteen, 150 points", {"ari": 0.5, "given": 0.6, "mixture_given": 0.7, "k_right": 1.0}, 0.0)
    calibration = {"sets": 2, "probability": [0.95, 0.4], "right": [1, 0], "ari": 0.8, "k_right": 0.5}
    ledger.add("calibration", calibration, 0.0)
    text = cluster_tables._text(ledger)
    assert "| HDBSCAN: a | 1.000 | 0.500 | 100% | 0.000 | 0.500 | 100% |" in text
    assert "| fifteen, 150 points | 0.500 | 0.600 | 0.700 | 100% |" in text
    assert "| 0.9 to 1.0 | 1 | 0.95 | 1.00 |" in text


def test_alterations_keep_the_labels_of_their_rows() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    for changed, rows in cluster_tables._alterations(X).values():
        assert len(changed) == len(rows)
        assert np.median(np.abs(changed[:, 1] - X[rows, 1])) < 0.1
