"""Search for the default Group Loss among variants, on held-out training classes.

The first round measures all variants with one seed; the second repeats the best with other seeds and therefore other
held-out classes. The strongest baselines are included, to compare without using test classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from statistics import fmean
from typing import Any

from entourage.embed.training.recipes import Recipe
from experiments.cells import Cell, Experiment, FailedError, Table
from experiments.embed_trials import Bench, with_training
from experiments.ledger import Ledger
from experiments.renamed import stored
from experiments.tables import mean_and_spread

RATE = 2e-4
SEARCHED = 6  # epochs
BASELINES = ("proxy-anchor", "soft-triple")
FINALISTS, FINAL_SEEDS = 4, (1, 2)
_CONFIDENT = stored("centres, confident prior")
_MORE_CE = stored("centres, more cross-entropy")
_CONFIDENT_MORE_CE = stored("centres, confident prior, more cross-entropy")
_NO_MEMORY = stored("centres, confident prior, more cross-entropy, no memory")
COMPARED = (*BASELINES, "centres, no game", _NO_MEMORY)  # for comparison with the finalists; never chosen


def _variant(group: Mapping[str, Any] | None = None, **changes: Any) -> Mapping[str, Any]:
    """Return the options of loss and recipe that differ from those of `experiments.embed_trials`."""
    return {"group": group or {}, **changes}


_ONE = {"anchors_per_class": 1}
_MEMORY = {**_ONE, "memory": 5}
_SHARP = {**_MEMORY, "temperature": 1.0}  # a prior as confident as the classifier
_NO_GAME = {"cross_entropy_weight": 0.0, "iterations": 0, "temperature": 1.0, "anchors_per_class": 0}
_PROXY = {**_MEMORY, "cross_entropy_weight": 0.0, "proxy_weight": 1.0}
_BOTH = {**_MEMORY, "cross_entropy_weight": 1.0, "proxy_weight": 1.0}
_COSINE: dict[str, Any] = {"head": "cosine", "scale": 20.0}
_CENTRES: dict[str, Any] = {"head": "centres", "scale": 20.0}
_STEEP: dict[str, Any] = {"head": "cosine", "scale": 32.0}  # the scale of the proxies
_STEEP_CENTRES: dict[str, Any] = {"head": "centres", "scale": 32.0}
VARIANTS: dict[str, Mapping[str, Any]] = {
    "linear": _variant(_ONE),
    "linear, memory": _variant(_MEMORY),
    _CONFIDENT: _variant(_SHARP, **_CENTRES),
    _MORE_CE: _variant({**_MEMORY, "cross_entropy_weight": 3.0}, **_CENTRES),
    _CONFIDENT_MORE_CE: _variant({**_SHARP, "cross_entropy_weight": 3.0}, **_CENTRES),
    _NO_MEMORY: _variant({**_SHARP, "cross_entropy_weight": 3.0, "memory": 0}, **_CENTRES),
    "proxy": _variant(_PROXY, **_STEEP),
    "proxy and cross-entropy": _variant(_BOTH, **_STEEP),
    "proxy and cross-entropy, centres": _variant(_BOTH, **_STEEP_CENTRES),
    "cosine, no game": _variant(_NO_GAME, **_COSINE),
    "centres, no game": _variant(_NO_GAME, **_CENTRES),
    "proxy, no game": _variant({**_NO_GAME, "proxy_weight": 1.0}, **_STEEP),
}


def variant(base: Recipe, name: str) -> Recipe:
    """Return the shared recipe with a variant or a baseline."""
    if name in BASELINES:
        return replace(base, loss=name)
    changes = dict(VARIANTS[name])
    return replace(base, group=replace(base.group, **changes.pop("group")), **changes)


def ranking(ledger: Ledger, datasets: Iterable[str]) -> list[tuple[float, str]]:
    """Rank the variants of the first round by the mean over data sets, best first.

    Variants without all figures, without the game, or only for comparison are left out.
    """
    scored = []
    for name, changes in VARIANTS.items():
        if name in COMPARED or changes["group"].get("iterations") == 0:
            continue
        results = [ledger.values(f"{dataset}/{name}/seed 0") for dataset in datasets]
        if all(values is not None for values in results):
            scored.append((fmean(values["recall@1"] for values in results if values is not None), name))
    return sorted(scored, reverse=True)


def search_experiment(bench: Bench) -> Experiment:
    """Return the experiment: all variants once, then the best again."""
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    for name in (*BASELINES, *VARIANTS):
        for dataset in setting.datasets:
            work = partial(_try, bench, dataset, name, 0)
            cells.append(Cell(f"{dataset}/{name}/seed 0", work, setting.seconds(dataset, epochs, choosing=True)))
    first_round = [f"{dataset}/{name}/seed 0" for name in VARIANTS for dataset in setting.datasets]
    for seed in FINAL_SEEDS:
        for rank in range(-len(COMPARED), FINALISTS):
            for dataset in setting.datasets:
                work = partial(_try_again, bench, dataset, rank, seed)
                name = COMPARED[rank] if rank < 0 else f"place {rank + 1}"
                planned, needs = setting.seconds(dataset, epochs, choosing=True), first_round if rank >= 0 else ()
                cells.append(Cell(f"{dataset}/{name}/seed {seed}", work, planned, needs))
    note = (
        f"Recall@1 on held-out halves of the training classes, best of {epochs} epochs at a learning rate of {RATE:g},"
        f" per cent. The best {FINALISTS} are repeated with other seeds and other held-out classes."
    )
    described = {**setting.described(), "variants": {name: dict(changes) for name, changes in VARIANTS.items()}}
    return Experiment(
        "embed_search",
        "Variants of the Group Loss",
        cells,
        partial(_tables, bench),
        {**described, "group": asdict(setting.recipe.group), "rate": RATE},
        note,
    )


def _try(bench: Bench, dataset: str, name: str, seed: int, ledger: Ledger) -> dict[str, Any]:
    epochs = bench.setting.recipe.stages[-1].epochs
    recipe = with_training(variant(bench.setting.recipe, name), rate=RATE, epochs=epochs, seed=seed)
    return {"name": name, **bench.choose(dataset, recipe)}


def _try_again(bench: Bench, dataset: str, rank: int, seed: int, ledger: Ledger) -> dict[str, Any]:
    if rank < 0:
        return _try(bench, dataset, COMPARED[rank], seed, ledger)
    ranked = ranking(ledger, bench.setting.datasets)
    if rank >= len(ranked):
        raise FailedError(f"{len(ranked)} variants did not fail; expected more than {rank}")
    return _try(bench, dataset, ranked[rank][1], seed, ledger)


def _tables(bench: Bench, ledger: Ledger) -> Iterable[Table]:
    """Yield one table per round, since figures on other held-out classes are not comparable."""
    datasets, seeds = bench.setting.datasets, (0, *FINAL_SEEDS)
    results: dict[str, dict[str, dict[int, float]]] = {}  # by variant, data set and seed
    for key in ledger.rows:
        values = ledger.values(key)
        if values is not None:
            dataset, _, seed = key.split("/")
            by_set = results.setdefault(values["name"], {name: {} for name in datasets})
            by_set[dataset][int(seed.removeprefix("seed "))] = values["recall@1"]
    for title, selected_seeds in (("All, with one seed", seeds[:1]), (f"The best, with {len(seeds)} seeds", seeds)):
        rows = []
        for name, by_set in results.items():
            if all(seed in by_seed for by_seed in by_set.values() for seed in selected_seeds):
                figures = [[by_set[dataset][seed] for seed in selected_seeds] for dataset in datasets]
                cells = [mean_and_spread(values, scale=100) for values in figures]
                rows.append((fmean(map(fmean, figures)), (name, *cells)))
        ranked = [(name, f"{100 * mean:.1f}", *cells) for mean, (name, *cells) in sorted(rows, reverse=True)]
        if ranked:
            yield Table(title, [("variant", "mean", *datasets), *ranked])
