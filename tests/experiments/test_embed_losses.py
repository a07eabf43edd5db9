"""Learning rates and epochs are chosen by held-out classes, for every loss in the same way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments.cells import run_experiment
from experiments.embed_losses import FIRST, OURS, RATES, SECOND, chosen, contestant, losses_experiment
from experiments.embed_trials import MIRRORED, Bench
from experiments.ledger import Ledger

from entourage.embed import BASELINE_LOSSES
from entourage.embed.losses.options import loss_preset
from entourage.embed.training.recipes import Recipe
from entourage.training import NonFiniteLossError
from experiments import embed_losses


class Scripted(Bench):
    """Bench with scripted results that records its calls."""

    asked: list[tuple[str, str, float, int, int]]

    def _answer(self, kind: str, recipe: Recipe) -> float:
        stage = recipe.stages[-1]
        self.asked.append((kind, recipe.loss, stage.learning_rate, stage.epochs, recipe.seed))
        return stage.learning_rate + 0.001 * recipe.seed

    def choose(self, dataset: str, recipe: Recipe) -> dict[str, float]:
        if recipe.loss == "triplet":
            raise NonFiniteLossError("the loss is not finite")
        return {"recall@1": self._answer("choose", recipe), "epoch": 1}

    def test(self, dataset: str, recipe: Recipe) -> dict[str, float]:
        value = self._answer("test", recipe)
        return dict.fromkeys(("recall@1", "recall@2", "recall@4", "recall@8", "nmi", MIRRORED), value)

    def untrained(self, dataset: str) -> dict[str, float]:
        return dict.fromkeys(("recall@1", "recall@2", "recall@4", "recall@8", "nmi"), 0.1)


@pytest.fixture
def scripted(bench: Bench) -> Scripted:
    one = Scripted(bench.setting)
    one.asked = []
    return one


def test_every_loss_takes_part_once() -> None:
    ours = {"group loss, default", "group loss, original", "group loss, thesis"}
    assert sorted((*FIRST, *SECOND)) == sorted({*BASELINE_LOSSES, *ours})


def test_the_best_trial_decides(tmp_path: Path) -> None:
    ledger = Ledger("x", tmp_path, {})
    assert chosen(ledger, "cub200", "triplet") is None
    for rate, recall, epoch in zip(RATES, (0.4, 0.3, 0.1), (3, 8, 5), strict=True):
        ledger.add(f"cub200/triplet/rate {rate:g}", {"recall@1": recall, "epoch": epoch}, 1.0)
    assert chosen(ledger, "cub200", "triplet") == (RATES[0], 3)


def test_contestants_differ_by_their_loss_alone(bench: Bench) -> None:
    base = bench.setting.recipe
    assert contestant(bench.setting, "cub200", "proxy-anchor") == replace(base, loss="proxy-anchor")
    for dataset, name in (("cub200", "original-cub"), ("cars196", "original-cars")):
        assert contestant(bench.setting, dataset, "group loss, original") == replace(base, group=loss_preset(name))
    assert contestant(bench.setting, "cub200", OURS).group == loss_preset("default")


def test_the_whole_way_from_choice_to_table(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_losses, "FIRST", ("triplet", "proxy-anchor"))
    monkeypatch.setattr(embed_losses, "SECOND", ("cross-entropy",))
    ledger = run_experiment(losses_experiment(scripted), tmp_path, verbose=False)
    best = max(RATES)
    tested: list[Any] = [one[1:] for one in scripted.asked if one[0] == "test"]
    expected = [(loss, best, 1, seed) for loss in ("proxy-anchor", "cross-entropy") for seed in (0, 1)]
    assert sorted(tested) == sorted(2 * expected)  # on two data sets
    assert ledger.rows["cub200/triplet/seed 0"]["failed"].startswith("triplet diverges on cub200")
    page = (tmp_path / "embed_losses.md").read_text()
    assert "| proxy-anchor | 0.00025 (highest) | 1 | 0.1 ± 0.1 |" in page
    assert "| none: pretrained features |  |  | 10.0 |" in page
    assert "| triplet" not in page


def test_rates_at_the_edge_of_the_grid_are_marked(scripted: Scripted, tmp_path: Path) -> None:
    ledger = Ledger("x", tmp_path, {})
    figures = dict.fromkeys(("recall@1", "recall@2", "recall@4", "recall@8", "nmi", MIRRORED), 0.5)
    for name, rate in zip(("triplet", "proxy-anchor", "proxy-nca"), RATES, strict=True):
        ledger.add(f"cub200/{name}/seed 0", {"rate": rate, "epochs": 1, **figures}, 1.0)
    experiment = losses_experiment(scripted)
    shown = {row[0]: row[1] for row in next(iter(experiment.tables(ledger))).rows}
    assert (shown["triplet"], shown["proxy-anchor"]) == ("2e-05 (lowest)", "0.0001")
    assert shown["proxy-nca"] == "0.00025 (highest)"
    assert "rates beyond it were not tried" in experiment.note


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["--epochs", "20"], "--epochs: 20 with --search; expected 6 at most"),
        (["--seeds", "2"], "--seeds: 2 with --search; expected no value"),
    ],
)
def test_a_search_refuses_what_it_would_not_heed(
    arguments: list[str], refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["embed_losses.py", "--search", "--plan", *arguments])
    with pytest.raises(ValueError, match=refused):
        embed_losses.run()


def test_plans_of_the_search_and_of_all_losses_take_their_own_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--search"], []):  # the results in the repository were made with these
        monkeypatch.setattr("sys.argv", ["embed_losses.py", "--plan", *arguments])
        embed_losses.run()
    assert capsys.readouterr().out.count(": 0 of ") == 2
