"""Graphs of several backbones and their table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from experiments.label_backbones import NAME, _graphs, probe_row, text
from experiments.ledger import Ledger


def setting(features: torch.Tensor) -> Any:
    truth = np.arange(len(features)) % 2
    return SimpleNamespace(
        backbone="toy", features=features, labels=truth, test_features=features, test_labels=truth, classes=2
    )


def test_several_backbones_have_a_graph_each_one_together_and_their_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    settings = [setting(torch.randn(40, 5, generator=generator)) for _ in range(2)]
    first, second, together, mean = _graphs(settings)
    np.testing.assert_allclose(mean.toarray(), (first + second).toarray() / 2)
    assert together.shape == (40, 40)
    assert abs(together - mean).max() > 0.01
    assert len(_graphs(settings[:1])) == 1


def test_the_probe_uses_all_labels() -> None:
    features = torch.eye(2).repeat(20, 1)
    assert probe_row(setting(features))["accuracy"] == 100.0


def test_tables_name_backbone_and_protocol(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, {"size": 160}, command="table")
    for seed, found in enumerate((60.0, 64.0)):
        ledger.add(f"graph/efficientnet-lite0/50/{seed}", {"found": found}, 1.0)
    ledger.add("probe/efficientnet-lite0", {"accuracy": 83.21}, 1.0)
    output = text(ledger)
    assert "| efficientnet-lite0 |  | 62.0 ± 2.8 |  |  |  |  |" in output
    assert "| efficientnet-lite0 | 83.2 |" in output
    assert "images of 160 pixels" in output
