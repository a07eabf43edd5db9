"""Rows of the presets on Caltech-101: arguments of the variants, graph rows and tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.label_presets import (
    BOTH,
    DEFAULT,
    FREQUENCIES,
    NAME,
    SIMILARITY,
    STRENGTH,
    VARIANTS,
    _arguments,
    graph_row,
    text,
)
from experiments.ledger import Ledger


@pytest.fixture
def points() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    return (np.repeat(centres, 30, axis=0) + rng.normal(0, 0.01, (90, 3))).astype(np.float32)


def test_variants_change_the_arguments_that_they_name(points: np.ndarray) -> None:
    codes = np.where(np.arange(90) % 10 == 0, np.repeat([0, 1, 2], 30), -1)
    assert set(_arguments("thesis", points, codes)) == {"classes"}
    assert set(_arguments(DEFAULT, points, codes)) == {"classes", "n_neighbors"}
    assert _arguments(FREQUENCIES, points, codes)["class_priors"] == "empirical"
    similarity = _arguments(SIMILARITY, points, codes)["class_similarity"]
    np.testing.assert_allclose(np.diag(similarity), 1, rtol=1e-5)
    assert similarity[0, 1] == pytest.approx(0.6 * STRENGTH, abs=0.01)
    assert similarity[0, 2] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("variant", VARIANTS)
def test_graph_rows_have_the_accuracy_on_unlabelled_points(points: np.ndarray, variant: str) -> None:
    row = graph_row(torch.from_numpy(points), np.repeat([0, 1, 2], 30), variant, 0.1, 0)
    assert row["found"] > 50  # chance is 33


def test_tables_name_features_and_size(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, {"size": 160}, command="table")
    ledger.add(f"graph/{BOTH}/{DEFAULT}/0.05/0", {"found": 70.0}, 1.0)
    ledger.add(f"graph/{BOTH}/{DEFAULT}/0.05/1", {"found": 72.0}, 1.0)
    assert "Classifiers" not in text(ledger)
    ledger.add("whole/thesis/efficientnet-lite1/0.05/0", {"accuracy": 55.55, "found": 60.0, "seconds": 90.0}, 90.0)
    output = text(ledger)
    assert "| default |  | 71.0 ± 1.4 |  |" in output
    assert "efficientnet-lite0 and efficientnet-lite1 (ImageNet) at 160 pixels" in output
    assert "| thesis | 55.5 | 60.0 | 1.5 |" in output or "| thesis | 55.6 | 60.0 | 1.5 |" in output
