"""What a training costs: seconds an epoch, memory, and epochs until it is nearly as good as it gets.

    python -m experiments.embed_cost --minutes 4     # on a GPU: the times of both data sets, and two courses
    python -m experiments.embed_cost --minutes 10    # on a CPU: the times of both; a course takes half an hour or more

Seconds are those of the fastest of several trials, in which all losses take turns: whatever else a machine does makes
it slower, never faster. A trial is a part of an epoch, from which the whole is extrapolated. They are told for a CPU
and for a GPU, memory for a GPU alone. Epochs to 95 % are those of the backbone after which Recall@1 of the test classes
is first at least 95 % of what it is after the last: a look at the course of a training, by which nothing is chosen.
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
TURNS = 6  # of each loss, short ones: a machine is slow for a while, not always
STEPS, LONGEST = 32, 8.0  # of a trial: steps, and seconds after which it ends all the same
QUICK = 2.0  # seconds that the steps of a trial take on a GPU or in a rehearsal; elsewhere they take the longest
SLOWER = 36.0  # how much longer a training takes with two threads of a CPU than is planned for a GPU, as a factor
IMAGES = "Memory includes the images, which stay on the GPU if they fit, as do those of data sets before."
SHARE = 0.95
MEMORY = "peak memory, GB"


def cost_experiment(bench: Bench) -> Experiment:
    """For each data set a cell for the time and memory of all losses, and one for the course of each."""
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    device = resolve_device(setting.device).type
    quick = device == "cuda" or setting.classes is not None  # a rehearsal is small enough for a CPU
    trial, slower = (QUICK, 1.0) if quick else (LONGEST, SLOWER)
    for dataset in setting.datasets:
        turns = partial(_take_turns, bench, dataset)
        cells.append(Cell(_turns_key(dataset, device), turns, TURNS * len(LOSSES) * trial))
    for dataset, name in product(setting.datasets, LOSSES):
        course = partial(_course, bench, dataset, name)
        cells.append(Cell(f"{dataset}/{name}/course", course, 1.5 * slower * setting.seconds(dataset, epochs)))
    classes, samples = bench.shape
    note = (
        f"{setting.backbone} at {setting.recipe.size} px, batches of {classes} classes with {samples} images each; the"
        f" course is that of {epochs} epochs at a learning rate of {setting.recipe.stages[-1].learning_rate:g}."
        f" {EPOCHS_NOTE} Seconds an epoch are extrapolated from trials of {STEPS} steps or {LONGEST:g} seconds at most."
    )
    return Experiment("embed_cost", "What a training costs", cells, partial(_tables, bench), described(setting), note)


def first_epoch_near_the_last(curve: list[float], fraction: float = SHARE) -> int:
    """The backbone's first epoch with at least that share of the last value; see `EPOCHS_NOTE`."""
    return next(epoch for epoch, value in enumerate(curve) if value >= fraction * curve[-1])


def _turns_key(dataset: str, device: str) -> str:
    return f"{dataset}/seconds an epoch, {device}"


def _take_turns(bench: Bench, dataset: str, ledger: Ledger) -> dict[str, dict[str, float]]:
    """Seconds an epoch and, on a GPU, gigabytes of each loss."""
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
    # On a CPU only the whole program's peak is known, which never falls: it would be that of an earlier loss.
    memory = {"gigabytes": torch.cuda.max_memory_allocated(torch_device) / 2**30} if on_gpu else {}
    return {"seconds": len(steps) * each, **memory}


def _course(bench: Bench, dataset: str, name: str, ledger: Ledger) -> dict[str, list[float]]:
    return bench.course(dataset, _recipe(bench, dataset, name, bench.setting.recipe.stages[-1].epochs))


def _recipe(bench: Bench, dataset: str, name: str, epochs: int) -> Recipe:
    rate = bench.setting.recipe.stages[-1].learning_rate
    return with_training(contestant(bench.setting, dataset, name), rate=rate, epochs=epochs)


def _tables(bench: Bench, ledger: Ledger) -> Iterable[Table]:
    for dataset in bench.setting.datasets:
        cpu, gpu = (ledger.values(_turns_key(dataset, device)) for device in ("cpu", "cuda"))
        columns = {
            "seconds an epoch, CPU": _shown(cpu, "seconds", 1),
            "seconds an epoch, GPU": _shown(gpu, "seconds", 2),
            MEMORY: _shown(gpu, "gigabytes", 2),
            "epochs to 95 %": {},
            "Recall@1 at the last": {},
        }
        for name in LOSSES:
            if (course := ledger.values(f"{dataset}/{name}/course")) is not None:
                columns["epochs to 95 %"][name] = str(first_epoch_near_the_last(course["test"]))
                columns["Recall@1 at the last"][name] = f"{100 * course['test'][-1]:.1f}"
        filled = {title: column for title, column in columns.items() if column}
        if filled:
            rows = [(name, *(column.get(name, "") for column in filled.values())) for name in LOSSES]
            yield Table(dataset, [("loss", *filled), *rows], IMAGES if MEMORY in filled else "")


def _shown(measured: Mapping[str, Any] | None, value: str, digits: int) -> dict[str, str]:
    """One value of each loss, as far as it was measured: a loss may have joined the others later."""
    results = {name: values[value] for name, values in (measured or {}).items() if value in values}
    return {name: f"{figure:.{digits}f}" for name, figure in results.items()}


def run() -> None:
    """Runs the experiment."""
    parser = arguments(__doc__)
    add_options(parser, epochs=8)
    options = parser.parse_args()
    main(cost_experiment(Bench(setting_of(options))), options)


if __name__ == "__main__":
    run_command(run)
