"""All losses on equal terms: one network, one budget, zero-shot retrieval on CUB-200-2011 and Cars-196.

    python -m experiments.embed_losses --plan
    python -m experiments.embed_losses --minutes 15
    python -m experiments.embed_losses --search       # which variant of the Group Loss shall be the default

For each loss the learning rate and the epoch are those with the best Recall@1 on half of the training classes, which
were held out; it is then trained on all training classes from several seeds and tested on classes it never saw.
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

RATES = (2e-5, 1e-4, 2.5e-4)  # losses of pairs and triplets want a low one, class vectors of their own a high one
EPOCHS, SEEDS = 8, 3
OURS = "group loss, default"
# What matters most is measured first.
FIRST = (OURS, "proxy-anchor", "soft-triple", "group loss, original", "cross-entropy", "normalised-softmax", "triplet")
THEN = ("multi-similarity", "proxy-nca", "group loss, thesis", "lifted-structure", "n-pairs", "angular")
METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "nmi")
ORIGINAL = {"cub200": "original-cub", "cars196": "original-cars"}


def ours() -> dict[str, Any]:
    """What of a recipe makes it the default's: the loss and its classifier."""
    default = recipe_preset("default")
    return {name: getattr(default, name) for name in ("group", "head", "scale", "head_rate")}


def described(setting: Setting) -> dict[str, Any]:
    """All that results depend on, the default Group Loss included, for the ledger."""
    return {**setting.described(), "default": {**ours(), "group": asdict(ours()["group"])}}


def contestant(setting: Setting, dataset: str, name: str) -> Recipe:
    """The common recipe with that loss."""
    base = setting.recipe
    if name == OURS:
        return replace(base, **ours())
    if name == "group loss, original":
        return replace(base, group=loss_preset(ORIGINAL.get(dataset, "original-cub")))
    if name == "group loss, thesis":
        return replace(base, group=loss_preset("thesis"))
    return replace(base, loss=name)


def chosen(ledger: Ledger, dataset: str, name: str) -> tuple[float, int] | None:
    """Learning rate and epochs with the best Recall@1 on held-out classes; None if no trial was a success."""
    results = [(ledger.values(choice_key(dataset, name, rate)), rate) for rate in RATES]
    trials = [(values["recall@1"], rate, values["epoch"]) for values, rate in results if values is not None]
    if not trials:
        return None
    _, rate, epoch = max(trials)
    return rate, int(epoch)


def losses_experiment(bench: Bench) -> Experiment:
    """The cells of all losses, those that matter most first."""
    setting = bench.setting
    cells = [Cell(f"{dataset}/untrained", partial(_untrained, bench, dataset), 3.0) for dataset in setting.datasets]
    epochs = setting.recipe.stages[-1].epochs
    for names in (FIRST, THEN):
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
        f" an epoch for what starts from nothing and up to {epochs} for all. Learning rate"
        f" ({', '.join(f'{rate:g}' for rate in RATES)}) and epoch of each loss are those with the best"
        " Recall@1 on the half of the training classes that was held out; the test classes are looked at once. Where"
        " the lowest or the highest rate was chosen, the row says so: none beyond it was tried, and it might be better."
        " In the last column the embedding of an image has that of its mirror image added to it."
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
    """The cell that tells how many epochs are best at that rate."""
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
            rows.append(("none: the features as they are", "", "", *figures, ""))
        scored = []
        for name in (*FIRST, *THEN):
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
    """A rate that was chosen, and whether it lies at the edge of those that were tried."""
    edge = {min(RATES): " (lowest)", max(RATES): " (highest)"}
    return f"{rate:g}{edge.get(rate, '')}"


def run() -> None:
    """Runs the comparison, or the search for the default."""
    parser = arguments(__doc__)
    add_options(parser, epochs=EPOCHS, seeds=SEEDS)
    help_text = (
        f"try variants of the Group Loss on held-out classes, with seeds of its own and {SEARCHED} epochs at most"
    )
    parser.add_argument("--search", action="store_true", help=help_text)
    parser.set_defaults(epochs=None, seeds=None)  # so that what was told is known from what was not
    options = parser.parse_args()
    _complete(options)
    bench = Bench(setting_of(options))
    main(search_experiment(bench) if options.search else losses_experiment(bench), options)


def _complete(options: argparse.Namespace) -> None:
    """Sets what was not told, and refuses what a search would not heed."""
    if options.search and options.seeds is not None:
        raise ValueError(f"--seeds is {options.seeds}; expected none with --search, which has seeds of its own")
    if options.search and options.epochs is not None and options.epochs > SEARCHED:
        raise ValueError(f"--epochs is {options.epochs}; expected {SEARCHED} at most with --search")
    options.epochs = options.epochs or (SEARCHED if options.search else EPOCHS)
    options.seeds = options.seeds or SEEDS


if __name__ == "__main__":
    run_command(run)
