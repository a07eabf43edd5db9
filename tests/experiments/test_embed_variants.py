"""The default is searched for among variants, on held-out classes, and the best are tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments.cells import run_experiment
from experiments.embed_trials import BASE, Bench
from experiments.embed_variants import BASELINES, COMPARED, FINAL_SEEDS, VARIANTS, ranking, search_experiment, variant
from experiments.ledger import Ledger
from experiments.renamed import stored

from entourage.embed.training.recipes import Recipe
from experiments import embed_variants

CONFIDENT = stored("centres, confident prior")


@pytest.mark.parametrize("name", [*VARIANTS, *BASELINES])
def test_all_variants_are_recipes(name: str) -> None:
    made = variant(BASE, name)
    assert made != BASE
    assert made.classes_per_batch * made.samples_per_class == 60  # one budget for all
    if made.group.proxy_weight:
        assert (made.head != "linear", made.scale) == (True, 32.0)


def test_all_variants_differ() -> None:
    assert len({variant(BASE, name) for name in VARIANTS}) == len(VARIANTS)


def test_the_best_are_ranked_by_the_mean_over_data_sets(tmp_path: Path) -> None:
    ledger = Ledger("x", tmp_path, {})
    for name, cub, cars in (
        ("linear", 0.4, 0.5),
        (CONFIDENT, 0.5, 0.6),
        ("proxy", 0.9, None),
        ("proxy, no game", 0.9, 0.9),
    ):
        ledger.add(f"cub200/{name}/seed 0", {"recall@1": cub}, 1.0)
        if cars is not None:
            ledger.add(f"cars196/{name}/seed 0", {"recall@1": cars}, 1.0)
    assert [name for _, name in ranking(ledger, ("cub200", "cars196"))] == [CONFIDENT, "linear"]


def test_finalists_are_tried_with_other_seeds(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: VARIANTS[name] for name in ("linear", CONFIDENT, "proxy")}
    monkeypatch.setattr(embed_variants, "VARIANTS", few)
    monkeypatch.setattr(embed_variants, "FINALISTS", 2)
    monkeypatch.setattr(embed_variants, "COMPARED", BASELINES)
    asked: list[tuple[str, float, int]] = []

    def choose(dataset: str, recipe: Recipe) -> dict[str, float]:
        asked.append((recipe.head, recipe.group.proxy_weight, recipe.seed))
        return {"recall@1": recipe.scale + recipe.group.proxy_weight, "epoch": 1}

    monkeypatch.setattr(bench, "choose", choose)
    ledger = run_experiment(search_experiment(bench), tmp_path, verbose=False)
    again = {one for one in asked if one[2] > 0 and one[1]}
    assert again == {("cosine", 1.0, 1), ("cosine", 1.0, 2)}  # "proxy" is first
    first = ledger.values("cub200/place 1/seed 2")
    assert first is not None
    assert first["name"] == "proxy"
    page = (tmp_path / "embed_search.md").read_text()
    assert page.index("| proxy |") < page.index("| centres, confident prior |")
    first, second = page.split("### The best, with 3 seeds")
    assert "| centres, confident prior |" in first
    assert "| centres, confident prior |" not in second  # of two equals the other one is a finalist


def test_what_finalists_are_compared_with_is_never_chosen(bench: Bench, tmp_path: Path) -> None:
    compared = [name for name in COMPARED if name not in BASELINES]
    assert set(compared) <= set(VARIANTS)
    keys = {cell.key for cell in search_experiment(bench).cells}
    assert {f"cub200/{name}/seed {seed}" for name in COMPARED for seed in (0, *FINAL_SEEDS)} <= keys
    ledger = Ledger("x", tmp_path, {})
    for name in ("linear", *compared):
        ledger.add(f"cub200/{name}/seed 0", {"recall@1": 0.5}, 1.0)
    assert [name for _, name in ranking(ledger, ("cub200",))] == ["linear"]
