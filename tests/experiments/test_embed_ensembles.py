"""Ensembles, the whole way on toys."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.cells import FailedError, run_experiment
from experiments.embed_ensembles import TRIED, ensembles_experiment
from experiments.embed_trials import Bench
from experiments.ledger import Ledger

from entourage.embed.training.recipes import Recipe, Stage
from entourage.io.weights import read_weights


def test_ensembles_share_no_network(one_set: Bench, tmp_path: Path) -> None:
    experiment = ensembles_experiment(one_set, Ledger("none", tmp_path), tmp_path / "work")
    ledger = run_experiment(experiment, tmp_path, verbose=False)
    keys = [key for key in ledger.rows if "networks" in key]
    assert len(keys) == len(TRIED) * (5 + 2 + 1)
    files = sorted((tmp_path / "work").iterdir())
    assert [file.name.rpartition("-")[0] for file in files] == [f"cub200-{seed}" for seed in range(5) for _ in TRIED]
    parts = [read_weights(file)[0]["embeddings"] for file in files]
    for rate in TRIED:
        results = ledger.values(f"cub200/rate {rate:g}/2 networks/1")
        pairs = [(a, b) for a in parts[4:6] for b in parts[6:8]]  # of the third and the fourth seed, at either rate
        joined = [torch.cat([torch.nn.functional.normalize(part, dim=1) for part in pair], dim=1) for pair in pairs]
        assert any(results == pytest.approx(one_set.measure("cub200", one), abs=1e-6) for one in joined)
    assert len(re.findall(r"\d ± \d", (tmp_path / "embed_ensembles.md").read_text())) == len(TRIED) * 2 * 5


def test_what_was_chosen_for_the_default_is_used(one_set: Bench, tmp_path: Path) -> None:
    losses = Ledger("losses", tmp_path, {})
    rate = TRIED[0]
    losses.add(f"cub200/group loss, default/rate {rate:g}", {"recall@1": 0.5, "epoch": 2}, 1.0)
    cell = ensembles_experiment(one_set, losses, tmp_path).cells[0]
    assert cell.work(losses) == {"rate": rate, "epochs": 2}


def test_a_network_whose_embeddings_are_missing_is_trained_again(
    one_set: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, trained, train = TRIED[0], [], Bench.train

    def spy(bench: Bench, dataset: str, recipe: Recipe) -> object:
        trained.append((recipe.seed, recipe.stages[-1].epochs))
        return train(bench, dataset, recipe)

    monkeypatch.setattr(Bench, "train", spy)
    losses, ledger = Ledger("losses", tmp_path, {}), Ledger("toy", tmp_path, {})
    cells = {cell.key: cell for cell in ensembles_experiment(one_set, losses, tmp_path / "work").cells}
    for seed in range(2):
        key = f"cub200/rate {rate:g}/network {seed}"
        ledger.add(key, cells[key].work(ledger), 1.0)
    pair = cells[f"cub200/rate {rate:g}/2 networks/0"]
    results = pair.work(ledger)
    trained.clear()
    file = min((tmp_path / "work").iterdir())
    file.unlink()
    losses.add(f"cub200/group loss, default/rate {rate:g}", {"recall@1": 0.5, "epoch": 7}, 1.0)  # chosen since
    assert pair.work(ledger) == pytest.approx(results)
    assert trained == [(0, 2)]  # that one alone, and as its row says
    assert file.exists()


def test_an_ensemble_fails_with_its_networks(one_set: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "train", lambda *_: pytest.fail("it has failed before"))
    ledger = Ledger("toy", tmp_path, {})
    cells = {cell.key: cell for cell in ensembles_experiment(one_set, ledger, tmp_path).cells}
    ledger.add(f"cub200/rate {TRIED[0]:g}/network 0", {"failed": "the loss is not finite"}, 1.0)
    with pytest.raises(FailedError, match=r"network 0 .*; expected all networks of the ensemble"):
        cells[f"cub200/rate {TRIED[0]:g}/1 networks/0"].work(ledger)


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
