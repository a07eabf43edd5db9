"""Sensitivity of the Group Loss to its options: the figures of chapter 4 of the thesis.

    python -m experiments.embed_robustness --minutes 6

The loss is that of the original code, and each table changes one option. Cells of the first seed come first, so that a
short run has every table, and a longer one adds standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from entourage.embed.losses.options import loss_preset
from entourage.embed.training.recipes import Recipe
from experiments.cells import Cell, Experiment, Table, arguments, main
from experiments.command import run_command
from experiments.embed_losses import ORIGINAL
from experiments.embed_trials import EPOCHS_NOTE, Bench, add_options, setting_of, with_training
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread, measured

ANCHORS, SAMPLES = range(5), range(5, 11)
CLASSES = (3, 6, 12, 24)
COURSES: dict[str, dict[str, Any]] = {
    "group loss": {},
    "group loss, no weight decay": {"weight_decay": 0.0},
    "proxy-nca": {"loss": "proxy-nca"},
}


_TITLES = {
    "classes of a batch, 8 images of each": "classes per batch, 8 images each",
    "epochs in which the backbone waits": "epochs with a frozen backbone",
}
"""Titles of tables that differ from the keys in results/*.json."""


@dataclass(frozen=True)
class Sweep:
    """An option with its values.

    Attributes:
        title: title of the table, and part of the keys of the rows.
        values: values of the option.
        change: function from a recipe and a value to the changed recipe.
        datasets: names of the data sets; None for all.
    """

    title: str
    values: tuple[Any, ...]
    change: Callable[[Recipe, Any], Recipe]
    datasets: tuple[str, ...] | None = None


def _group(name: str) -> Callable[[Recipe, Any], Recipe]:
    return lambda recipe, value: replace(recipe, group=replace(recipe.group, **{name: value}))


SWEEPS = (
    Sweep("negative similarities", ("clamp", "shift"), _group("negatives")),
    Sweep("weight decay", (0.0, 1e-4), lambda recipe, value: replace(recipe, weight_decay=value)),
    Sweep("rounds of the game", (0, 1, 2, 5), _group("iterations"), ("cub200",)),
    Sweep("temperature", (1.0, 6.0, 24.0, 80.0), _group("temperature"), ("cub200",)),
    Sweep(
        "classes of a batch, 8 images of each",
        CLASSES,
        lambda recipe, value: replace(recipe, classes_per_batch=value, samples_per_class=8),
        ("cub200",),
    ),
    Sweep("cross-entropy added", (0.0, 1.0), _group("cross_entropy_weight"), ("cub200",)),
    Sweep(
        "statistics of batch normalisation",
        ("of the batches", "of the pretraining"),
        lambda recipe, value: replace(recipe, freeze_norm=value == "of the pretraining"),
    ),
    Sweep(
        "epochs in which the backbone waits",
        (0, 1),
        lambda recipe, value: replace(recipe, stages=recipe.stages[-1 - value :]),
    ),
)


def robustness_experiment(bench: Bench) -> Experiment:
    """Return the experiment: all sweeps, the grid of anchors and samples, and Recall@1 by epoch."""
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    for seed in range(setting.seeds):
        for sweep in SWEEPS:
            for dataset in _datasets(sweep, setting.datasets):
                for value in sweep.values:
                    work = partial(_sweep, bench, dataset, sweep, value, seed)
                    planned = setting.seconds(dataset, epochs)
                    cells.append(Cell(f"{dataset}/{sweep.title}/{value}/seed {seed}", work, planned))
        if seed == 0:
            dataset = setting.datasets[-1]
            for name in COURSES:
                course = partial(_course, bench, dataset, name)
                cells.append(Cell(f"{dataset}/course/{name}", course, 1.5 * setting.seconds(dataset, 2 * epochs)))
        for samples in SAMPLES:
            for anchors in ANCHORS:
                dataset = setting.datasets[0]
                work = partial(_grid, bench, dataset, anchors, samples, seed)
                planned = setting.seconds(dataset, epochs)
                cells.append(Cell(f"{dataset}/anchors {anchors} of {samples}/seed {seed}", work, planned))
    rate = setting.recipe.stages[-1].learning_rate
    note = (
        f"The loss of the original code; {setting.backbone} at {setting.recipe.size} px, {epochs} epochs at a learning"
        f" rate of {rate:g}. Recall@1 on the test classes, per cent, mean ± standard deviation where there are several"
        " seeds."
    )
    tables = partial(_tables, bench)
    return Experiment("embed_robustness", "Sensitivity of the Group Loss", cells, tables, setting.described(), note)


def base(bench: Bench, dataset: str, seed: int) -> Recipe:
    """Return the recipe that sweeps change."""
    stage = bench.setting.recipe.stages[-1]
    loss = replace(bench.setting.recipe, group=loss_preset(ORIGINAL.get(dataset, "original-cub")))
    return with_training(loss, rate=stage.learning_rate, epochs=stage.epochs, seed=seed)


def _datasets(sweep: Sweep, datasets: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in datasets if sweep.datasets is None or name in sweep.datasets)


def _sweep(bench: Bench, dataset: str, sweep: Sweep, value: Any, seed: int, ledger: Ledger) -> dict[str, float]:
    return bench.test(dataset, sweep.change(base(bench, dataset, seed), value))


def _grid(bench: Bench, dataset: str, anchors: int, samples: int, seed: int, ledger: Ledger) -> dict[str, float]:
    """Measure a number of anchors and of samples per class, in batches of constant size."""
    recipe = base(bench, dataset, seed)
    classes = max(2, round(recipe.classes_per_batch * recipe.samples_per_class / samples))
    group = replace(recipe.group, anchors_per_class=anchors)
    return bench.test(dataset, replace(recipe, group=group, samples_per_class=samples, classes_per_batch=classes))


def _course(bench: Bench, dataset: str, name: str, ledger: Ledger) -> dict[str, list[float]]:
    """Return Recall@1 of training and test images after each of twice as many epochs, to measure overfitting."""
    recipe = base(bench, dataset, 0)
    stage = recipe.stages[-1]
    longer = with_training(recipe, rate=stage.learning_rate, epochs=2 * stage.epochs)
    return bench.recall_by_epoch(dataset, replace(longer, **COURSES[name]), on_training=True)


def _tables(bench: Bench, ledger: Ledger) -> Iterable[Table]:
    setting = bench.setting
    for sweep in SWEEPS:
        datasets = _datasets(sweep, setting.datasets)
        rows = measured(
            (str(value), *(_recall(bench, ledger, f"{d}/{sweep.title}/{value}") for d in datasets))
            for value in sweep.values
        )
        if rows:
            title = _TITLES.get(sweep.title, sweep.title)
            yield Table(title.capitalize(), [(title, *datasets), *rows])
    dataset = setting.datasets[0]
    grid = measured(
        (str(samples), *(_recall(bench, ledger, f"{dataset}/anchors {anchors} of {samples}") for anchors in ANCHORS))
        for samples in SAMPLES
    )
    if grid:
        header = ("samples per class", *(f"{anchors} anchors" for anchors in ANCHORS))
        yield Table(f"Anchors and samples per class, {dataset}", [header, *grid])
    yield from _courses(setting.datasets[-1], ledger)


def _courses(dataset: str, ledger: Ledger) -> Iterable[Table]:
    rows = []
    for name in COURSES:
        curves = ledger.values(f"{dataset}/course/{name}")
        if curves is not None:
            test, training = curves["test"], curves["training"]
            best = max(range(len(test)), key=test.__getitem__)
            figures = (test[best], test[-1], training[-1], training[-1] - test[-1])
            rows.append((name, str(best), *(f"{100 * figure:.1f}" for figure in figures)))
    if rows:
        header = (
            "loss",
            "best epoch",
            "test at best epoch",
            "test at last epoch",
            "training at last epoch",
            "gap at last epoch",
        )
        note = f"{EPOCHS_NOTE} The JSON file has the complete curves."
        yield Table(f"Training and test recall, {dataset}", [header, *rows], note)


def _recall(bench: Bench, ledger: Ledger, key: str) -> str:
    runs = [ledger.values(f"{key}/seed {seed}") for seed in range(bench.setting.seeds)]
    return mean_and_spread([run["recall@1"] for run in runs if run is not None], scale=100)


def run() -> None:
    """Run the experiment."""
    parser = arguments(__doc__)
    add_options(parser, epochs=5, seeds=1)
    options = parser.parse_args()
    main(robustness_experiment(Bench(setting_of(options))), options)


if __name__ == "__main__":
    run_command(run)
