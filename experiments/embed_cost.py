"""Cost of a training: seconds per epoch, memory, and epochs until 95 % of the final Recall@1.

    python -m experiments.embed_cost --minutes 4     # on a GPU: the times of both data sets, and two trainings
    python -m experiments.embed_cost --minutes 10    # on a CPU: the times of both; a training takes half an hour

Seconds are those of the fastest of several trials, with the losses in alternation, since other processes only slow a
trial down. A trial is a part of an epoch, from which the epoch is extrapolated. Times are measured on a CPU and on a
GPU, memory on a GPU only. Epochs to 95 % are the epochs of the backbone after which Recall@1 on the test classes first
reaches 95 % of its final value; nothing is selected by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any

import torch

from entourage.compute import resolve_device
from entourage.embed.training.fit import stage_options
from entourage.embed.training.recipes import Recipe
from entourage.training.time_budget import seconds_per_step
from experiments.cells import Cell, Experiment, Table, arguments, main
from experiments.command import run_command
from experiments.embed_losses import OURS, contestant, described
from experiments.embed_trials import EPOCHS_NOTE, Bench, add_options, setting_of, with_training
from experiments.ledger import Ledger

LOSSES = (OURS, "group loss, original", "proxy-anchor", "proxy-nca")
TURNS = 6  # trials per loss; short ones, since a machine is slow only at times
STEPS, LONGEST = 32, 8.0  # maximum steps and seconds of a trial
QUICK = 2.0  # estimated seconds of a trial on a GPU or in a trial run; elsewhere LONGEST
SLOWER = 36.0  # ratio of the training time with two CPU threads to the estimate for a GPU
IMAGES = "Memory includes the images of this and of earlier data sets, which stay on the GPU if they fit."
SHARE = 0.95
MEMORY = "peak memory, GB"


def cost_experiment(bench: Bench) -> Experiment:
    """Return the experiment: per data set a cell for time and memory, and one for the training of each loss."""
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    device = resolve_device(setting.device).type
    quick = device == "cuda" or setting.classes is not None  # a trial run is small
    trial, slower = (QUICK, 1.0) if quick else (LONGEST, SLOWER)
    for dataset in setting.datasets:
        turns = partial(_take_turns, bench, dataset)
        cells.append(Cell(_turns_key(dataset, device), turns, TURNS * len(LOSSES) * trial))
    for dataset, name in product(setting.datasets, LOSSES):
        course = partial(_recall_by_epoch, bench, dataset, name)
        cells.append(Cell(f"{dataset}/{name}/course", course, 1.5 * slower * setting.seconds(dataset, epochs)))
    classes, samples = bench.shape
    note = (
        f"{setting.backbone} at {setting.recipe.size} px, batches of {classes} classes with {samples} images each; the"
        f" training has {epochs} epochs at a learning rate of {setting.recipe.stages[-1].learning_rate:g}."
        f" {EPOCHS_NOTE} Seconds per epoch are extrapolated from trials of at most {STEPS} steps or {LONGEST:g} s."
    )
    return Experiment("embed_cost", "Cost of a training", cells, partial(_tables, bench), described(setting), note)


def first_epoch_near_the_last(curve: list[float], fraction: float = SHARE) -> int:
    """Return the first epoch with at least a fraction of the last value; see `EPOCHS_NOTE`."""
    return next(epoch for epoch, value in enumerate(curve) if value >= fraction * curve[-1])


def _turns_key(dataset: str, device: str) -> str:
    return f"{dataset}/seconds an epoch, {device}"


def _take_turns(bench: Bench, dataset: str, ledger: Ledger) -> dict[str, dict[str, float]]:
    """Measure seconds per epoch and, on a GPU, gigabytes of each loss."""
    results: dict[str, dict[str, float]] = {}
    for name in TURNS * LOSSES:
        values = _time(bench, dataset, name)
        best = results.setdefault(name, values)
        best["seconds"] = min(best["seconds"], values["seconds"])
    return results


def _time(bench: Bench, dataset: str, name: str) -> dict[str, float]:
    torch_device = resolve_device(bench.setting.device)
    on_gpu = torch_device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(torch_device)
    recipe = _recipe(bench, dataset, name, 1)
    task, options = bench.task(dataset, recipe), stage_options(recipe, recipe.stages[-1])
    steps = task.plan(0)
    each = seconds_per_step(task, steps[:STEPS], torch_device, LONGEST, steps_per_epoch=len(steps), options=options)
    # On a CPU only the peak of the process is known, which may be that of an earlier loss.
    memory = {"gigabytes": torch.cuda.max_memory_allocated(torch_device) / 2**30} if on_gpu else {}
    return {"seconds": len(steps) * each, **memory}


def _recall_by_epoch(bench: Bench, dataset: str, name: str, ledger: Ledger) -> dict[str, list[float]]:
    return bench.recall_by_epoch(dataset, _recipe(bench, dataset, name, bench.setting.recipe.stages[-1].epochs))


def _recipe(bench: Bench, dataset: str, name: str, epochs: int) -> Recipe:
    rate = bench.setting.recipe.stages[-1].learning_rate
    return with_training(contestant(bench.setting, dataset, name), rate=rate, epochs=epochs)


def _tables(bench: Bench, ledger: Ledger) -> Iterable[Table]:
    for dataset in bench.setting.datasets:
        cpu, gpu = (ledger.values(_turns_key(dataset, device)) for device in ("cpu", "cuda"))
        columns = {
            "seconds per epoch, CPU": _format(cpu, "seconds", 1),
            "seconds per epoch, GPU": _format(gpu, "seconds", 2),
            MEMORY: _format(gpu, "gigabytes", 2),
            "epochs to 95 %": {},
            "final Recall@1": {},
        }
        for name in LOSSES:
            if (course := ledger.values(f"{dataset}/{name}/course")) is not None:
                columns["epochs to 95 %"][name] = str(first_epoch_near_the_last(course["test"]))
                columns["final Recall@1"][name] = f"{100 * course['test'][-1]:.1f}"
        filled = {title: column for title, column in columns.items() if column}
        if filled:
            rows = [(name, *(column.get(name, "") for column in filled.values())) for name in LOSSES]
            yield Table(dataset, [("loss", *filled), *rows], IMAGES if MEMORY in filled else "")


def _format(measured: Mapping[str, Any] | None, value: str, digits: int) -> dict[str, str]:
    """Format one value of each loss that was measured; losses may be added later."""
    results = {name: values[value] for name, values in (measured or {}).items() if value in values}
    return {name: f"{figure:.{digits}f}" for name, figure in results.items()}


def run() -> None:
    """Run the experiment."""
    parser = arguments(__doc__)
    add_options(parser, epochs=8)
    options = parser.parse_args()
    main(cost_experiment(Bench(setting_of(options))), options)


if __name__ == "__main__":
    run_command(run)
