"""Comparison of losses with one network and one budget: zero-shot retrieval on CUB-200-2011 and Cars-196.

    python -m experiments.embed_losses --plan
    python -m experiments.embed_losses --minutes 15
    python -m experiments.embed_losses --search       # variants of the Group Loss, to choose the default

For each loss, learning rate and epoch are those with the best Recall@1 on a held-out half of the training classes; it
is then trained on all training classes with several seeds and evaluated on the test classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from entourage.embed.losses.options import loss_preset
from entourage.embed.training.recipes import Recipe, recipe_preset
from experiments.cells import Cell, Experiment, FailedError, Table, arguments, main
from experiments.command import run_command
from experiments.embed_trials import MIRRORED, Bench, Setting, add_options, setting_of, with_training
from experiments.embed_variants import SEARCHED, search_experiment
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread

RATES = (2e-5, 1e-4, 2.5e-4)  # pair and triplet losses need a low one, losses with class vectors a high one
EPOCHS, SEEDS = 8, 3
OURS = "group loss, default"
# The most important losses are measured first.
FIRST = (OURS, "proxy-anchor", "soft-triple", "group loss, original", "cross-entropy", "normalised-softmax", "triplet")
SECOND = ("multi-similarity", "proxy-nca", "group loss, thesis", "lifted-structure", "n-pairs", "angular")
METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "nmi")
ORIGINAL = {"cub200": "original-cub", "cars196": "original-cars"}


def ours() -> dict[str, Any]:
    """Return the fields of the default recipe for loss and classifier."""
    default = recipe_preset("default")
    return {name: getattr(default, name) for name in ("group", "head", "scale", "head_rate")}


def described(setting: Setting) -> dict[str, Any]:
    """Return the settings on which results depend, including the default Group Loss, for the ledger."""
    return {**setting.described(), "default": {**ours(), "group": asdict(ours()["group"])}}


def contestant(setting: Setting, dataset: str, name: str) -> Recipe:
    """Return the shared recipe with a loss."""
    base = setting.recipe
    if name == OURS:
        return replace(base, **ours())
    if name == "group loss, original":
        return replace(base, group=loss_preset(ORIGINAL.get(dataset, "original-cub")))
    if name == "group loss, thesis":
        return replace(base, group=loss_preset("thesis"))
    return replace(base, loss=name)


def chosen(ledger: Ledger, dataset: str, name: str) -> tuple[float, int] | None:
    """Return learning rate and epochs with the best Recall@1 on held-out classes; None if all trials failed."""
    results = [(ledger.values(choice_key(dataset, name, rate)), rate) for rate in RATES]
    trials = [(values["recall@1"], rate, values["epoch"]) for values, rate in results if values is not None]
    if not trials:
        return None
    _, rate, epoch = max(trials)
    return rate, int(epoch)


def losses_experiment(bench: Bench) -> Experiment:
    """Return the experiment, with the most important losses first."""
    setting = bench.setting
    cells = [Cell(f"{dataset}/untrained", partial(_untrained, bench, dataset), 3.0) for dataset in setting.datasets]
    epochs = setting.recipe.stages[-1].epochs
    for names in (FIRST, SECOND):
        for dataset in setting.datasets:
            for name in names:
                for rate in RATES:
                    work = partial(_choose, bench, dataset, name, rate)
                    planned = setting.seconds(dataset, epochs, choosing=True)
                    cells.append(Cell(choice_key(dataset, name, rate), work, planned))
                trials = [choice_key(dataset, name, rate) for rate in RATES]
                for seed in range(setting.seeds):
                    work = partial(_test, bench, dataset, name, seed)
                    cells.append(Cell(f"{dataset}/{name}/seed {seed}", work, setting.seconds(dataset, epochs), trials))
    classes, samples = bench.shape
    note = (
        f"{setting.backbone} at {setting.recipe.size} px, batches of {classes} classes with {samples} images each,"
        f" one epoch for the randomly initialised layers and up to {epochs} for all. Learning rate"
        f" ({', '.join(f'{rate:g}' for rate in RATES)}) and epoch of each loss are those with the best"
        " Recall@1 on the held-out half of the training classes; the test classes are evaluated once. A chosen rate at"
        " the edge of the grid is marked: rates beyond it were not tried and might be better."
        " In the last column, the embeddings of an image and of its mirror image are summed."
        f" Per cent, mean ± standard deviation over {setting.seeds} seeds."
    )
    return Experiment(
        "embed_losses",
        "Losses for embeddings on equal terms",
        cells,
        partial(_tables, setting),
        {**described(setting), "rates": RATES},
        note,
    )


def choice_key(dataset: str, name: str, rate: float) -> str:
    """Return the key of the cell that chooses the epoch at a rate."""
    return f"{dataset}/{name}/rate {rate:g}"


def _untrained(bench: Bench, dataset: str, ledger: Ledger) -> dict[str, float]:
    return bench.untrained(dataset)


def _choose(bench: Bench, dataset: str, name: str, rate: float, ledger: Ledger) -> dict[str, float]:
    epochs = bench.setting.recipe.stages[-1].epochs
    return bench.choose(dataset, with_training(contestant(bench.setting, dataset, name), rate=rate, epochs=epochs))


def _test(bench: Bench, dataset: str, name: str, seed: int, ledger: Ledger) -> dict[str, Any]:
    best = chosen(ledger, dataset, name)
    if best is None:
        raise FailedError(f"{name} diverges on {dataset} at all learning rates")
    rate, epochs = best
    named = with_training(contestant(bench.setting, dataset, name), rate=rate, epochs=epochs, seed=seed)
    return {"rate": rate, "epochs": epochs, **bench.test(dataset, named)}


def _tables(setting: Setting, ledger: Ledger) -> Iterable[Table]:
    for dataset in setting.datasets:
        rows: list[tuple[str, ...]] = [("loss", "learning rate", "epochs", *METRICS, MIRRORED)]
        untrained = ledger.values(f"{dataset}/untrained")
        if untrained is not None:
            figures = (f"{100 * untrained[metric]:.1f}" for metric in METRICS)
            rows.append(("none: pretrained features", "", "", *figures, ""))
        scored = []
        for name in (*FIRST, *SECOND):
            runs = [ledger.values(f"{dataset}/{name}/seed {seed}") for seed in range(setting.seeds)]
            results = [run for run in runs if run is not None]
            if results:
                cells = [
                    mean_and_spread([run[metric] for run in results], scale=100) for metric in (*METRICS, MIRRORED)
                ]
                mean = sum(run["recall@1"] for run in results) / len(results)
                scored.append((mean, (name, _rate_shown(results[0]["rate"]), str(results[0]["epochs"]), *cells)))
        yield Table(dataset, [*rows, *(row for _, row in sorted(scored, reverse=True))])


def _rate_shown(rate: float) -> str:
    """Format a rate, marked if it is the lowest or the highest of the grid."""
    edge = {min(RATES): " (lowest)", max(RATES): " (highest)"}
    return f"{rate:g}{edge.get(rate, '')}"


def run() -> None:
    """Run the comparison, or the search for the default."""
    parser = arguments(__doc__)
    add_options(parser, epochs=EPOCHS, seeds=SEEDS)
    help_text = f"Try variants of the Group Loss on held-out classes, with fixed seeds and at most {SEARCHED} epochs."
    parser.add_argument("--search", action="store_true", help=help_text)
    parser.set_defaults(epochs=None, seeds=None)  # to distinguish options that were passed
    options = parser.parse_args()
    _complete(options)
    bench = Bench(setting_of(options))
    main(search_experiment(bench) if options.search else losses_experiment(bench), options)


def _complete(options: argparse.Namespace) -> None:
    """Set missing options and reject those that a search does not use."""
    if options.search and options.seeds is not None:
        raise ValueError(f"--seeds: {options.seeds} with --search; expected no value, since its seeds are fixed")
    if options.search and options.epochs is not None and options.epochs > SEARCHED:
        raise ValueError(f"--epochs: {options.epochs} with --search; expected {SEARCHED} at most")
    options.epochs = options.epochs or (SEARCHED if options.search else EPOCHS)
    options.seeds = options.seeds or SEEDS


if __name__ == "__main__":
    run_command(run)
