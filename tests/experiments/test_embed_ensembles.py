"""Ensembles, the whole way on toys."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.cells import run_experiment
from experiments.embed_ensembles import TRIED, ensembles_experiment
from experiments.embed_trials import Bench
from experiments.ledger import Ledger

from entourage.embed.recipe import Recipe, Stage
from entourage.training.weights import read_weights


def test_ensembles_share_no_network(one_set: Bench, tmp_path: Path) -> None:
    experiment = ensembles_experiment(one_set, Ledger("none", tmp_path), tmp_path / "work")
    ledger = run_experiment(experiment, tmp_path, say=False)
    keys = [key for key in ledger.rows if "networks" in key]
    assert len(keys) == len(TRIED) * (5 + 2 + 1)
    files = sorted((tmp_path / "work").iterdir())
    assert [file.name.rpartition("-")[0] for file in files] == [f"cub200-{seed}" for seed in range(5) for _ in TRIED]
    parts = [read_weights(file)[0]["embeddings"] for file in files]
    for rate in TRIED:
        found = ledger.values(f"cub200/rate {rate:g}/2 networks/1")
        pairs = [(a, b) for a in parts[4:6] for b in parts[6:8]]  # of the third and the fourth seed, at either rate
        joined = [torch.cat([torch.nn.functional.normalize(part, dim=1) for part in pair], dim=1) for pair in pairs]
        assert any(found == pytest.approx(one_set.measure("cub200", one), abs=1e-6) for one in joined)
    assert len(re.findall(r"\d ± \d", (tmp_path / "embed_ensembles.md").read_text())) == len(TRIED) * 2 * 5


def test_what_was_chosen_for_the_default_is_used(one_set: Bench, tmp_path: Path) -> None:
    losses = Ledger("losses", tmp_path, {})
    rate = TRIED[0]
    losses.add(f"cub200/group loss, default/rate {rate:g}", {"recall@1": 0.5, "epoch": 2}, 1.0)
    cell = ensembles_experiment(one_set, losses, tmp_path).cells[0]
    assert cell.work(losses) == {"rate": rate, "epochs": 2}


@pytest.mark.parametrize(
    "change", [{"backbone": "other"}, {"classes": 3}, {"recipe": Recipe(dimensions=4, stages=(Stage(1, 1e-3),))}]
)
def test_networks_of_another_setting_are_other_files(
    one_set: Bench, tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "train", lambda *_: None)
    monkeypatch.setattr(Bench, "embed_test", lambda *_: torch.zeros(2, 2))
    ledger = Ledger("none", tmp_path)
    for setting in (one_set.setting, replace(one_set.setting, **change)):
        ensembles_experiment(Bench(setting), ledger, tmp_path / "work").cells[0].work(ledger)
    assert len(list((tmp_path / "work").iterdir())) == 2
