"""What a training costs: seconds an epoch, memory, and epochs until it is nearly as good as it gets.

    python -m experiments.embed_cost --minutes 3

An epoch is timed between its neighbours, without loading and measuring. Memory is that of a GPU. Epochs to 95 % are the
first after which Recall@1 of the test classes is at least 95 % of what the last one has: a look at the course of a
training, by which nothing is chosen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from functools import partial

import torch

from entourage.embed.course import read_course
from entourage.embed.fit import train_embedding
from entourage.embed.recipe import Recipe
from entourage.embed.training import EmbeddingData
from experiments.cells import Cell, Experiment, Table, arguments, main
from experiments.command import run_command
from experiments.embed_losses import OURS, contestant, described
from experiments.embed_trials import Bench, add_options, seconds, setting_of, with_training
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread

LOSSES = (OURS, "group loss, original", "proxy-anchor", "proxy-nca")
SHARE = 0.95


def cost_experiment(bench: Bench) -> Experiment:
    """Two cells for each loss and data set: its time and memory, and its course."""
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    for dataset in setting.datasets:
        for seed in range(setting.seeds):
            for name in LOSSES:
                cells.append(
                    Cell(
                        f"{dataset}/{name}/time {seed}", partial(_time, bench, dataset, name, seed), seconds(dataset, 4)
                    )
                )
        for name in LOSSES:
            course = partial(_course, bench, dataset, name)
            cells.append(Cell(f"{dataset}/{name}/course", course, 1.5 * seconds(dataset, epochs)))
    classes, samples = bench.shape
    note = (
        f"{setting.backbone} at {setting.recipe.size} px, batches of {classes} classes with {samples} images each; the"
        f" course is that of {epochs} epochs at a learning rate of {setting.recipe.stages[-1].learning_rate:g}."
    )
    return Experiment("embed_cost", "What a training costs", cells, partial(_tables, bench), described(setting), note)


def first_epoch_near_the_last(curve: list[float], share: float = SHARE) -> int:
    """The first epoch, from 1, with at least that share of the last value."""
    return next(epoch for epoch, value in enumerate(curve, start=1) if value >= share * curve[-1])


def _time(bench: Bench, dataset: str, name: str, seed: int, ledger: Ledger) -> dict[str, float]:
    """Seconds of an epoch: of three less those of one, by two."""
    if bench.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    took = []
    for epochs in (1, 1, 3):  # the first of all warms up
        began = time.perf_counter()
        bench.train(dataset, _recipe(bench, dataset, name, epochs, seed))
        if bench.on_gpu:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    # On a CPU only the whole program's peak is known, which never falls: it would be that of an earlier loss.
    memory = {"gigabytes": torch.cuda.max_memory_allocated() / 2**30} if bench.on_gpu else {}
    return {"seconds": (took[2] - took[1]) / 2, **memory}


def _course(bench: Bench, dataset: str, name: str, ledger: Ledger) -> dict[str, list[float]]:
    halves = bench.halves(dataset)
    data = EmbeddingData(halves.bank, halves.labels, halves.training, {"test": halves.test})
    recipe = _recipe(bench, dataset, name, bench.setting.recipe.stages[-1].epochs, 0)
    with tempfile.TemporaryDirectory() as folder:
        train_embedding(bench.load(), data, recipe, run=folder, device=bench.setting.device, progress=False)
        return read_course(folder)


def _recipe(bench: Bench, dataset: str, name: str, epochs: int, seed: int) -> Recipe:
    rate = bench.setting.recipe.stages[-1].learning_rate
    return with_training(contestant(bench.setting, dataset, name), rate=rate, epochs=epochs, seed=seed)


def _tables(bench: Bench, ledger: Ledger) -> Iterable[Table]:
    for dataset in bench.setting.datasets:
        rows: list[tuple[str, ...]] = [
            ("loss", "seconds an epoch", "peak memory, GB", "epochs to 95 %", "Recall@1 at the last")
        ]
        for name in LOSSES:
            keys = [f"{dataset}/{name}/time {seed}" for seed in range(bench.setting.seeds)]
            timed = [values for values in map(ledger.values, keys) if values is not None]
            course = ledger.values(f"{dataset}/{name}/course")
            curve = None if course is None else course["test"]
            if timed or curve:
                peaks = [one["gigabytes"] for one in timed if "gigabytes" in one]
                memory = f"{max(peaks):.2f}" if peaks else ""
                speed = mean_and_spread([one["seconds"] for one in timed], digits=2)
                near = [str(first_epoch_near_the_last(curve)), f"{100 * curve[-1]:.1f}"] if curve else ["", ""]
                rows.append((name, speed, memory, *near))
        if len(rows) > 1:
            yield Table(dataset, rows)


def run() -> None:
    """Runs the experiment."""
    parser = arguments(__doc__)
    add_options(parser, epochs=8, seeds=1)
    options = parser.parse_args()
    main(cost_experiment(Bench(setting_of(options))), options)


if __name__ == "__main__":
    run_command(run)
