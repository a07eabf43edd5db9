"""Ensembles by concatenation, 1, 2 and 5 networks (thesis, chapter 4, "Loss with ensembles").

    python -m experiments.embed_ensembles --minutes 4

Networks differ only in their seed. The ensembles of one size share no network, so that their standard deviation is
reported as well. The best learning rate of one network may not be the best for an ensemble, which needs diversity: two
rates are measured, each with the epochs chosen on held-out classes. Embeddings of the test images are stored in the
folder --work, in one file per network and recipe; a network without a file, e.g. on another machine, is trained again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path

from entourage.compute import resolve_device
from entourage.embed.models import concatenate_embeddings
from entourage.embed.training.recipes import Recipe
from entourage.io.weights import read_weights, write_weights
from experiments.cells import Cell, Experiment, FailedError, Table, arguments, main, results_folder
from experiments.command import run_command
from experiments.embed_losses import METRICS, OURS, RATES, choice_key, contestant, described
from experiments.embed_trials import Bench, add_options, setting_of, with_training
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread

SIZES = (1, 2, 5)
TRIED = RATES[1:]  # the lowest trains too little
WORK = Path("build/experiments")


def ensembles_experiment(bench: Bench, losses: Ledger, work: Path) -> Experiment:
    """Return the experiment: a cell for each network and one for each ensemble.

    Args:
        bench: trainings and measurements.
        losses: ledger of `experiments.embed_losses`, whose choice of epochs is used if it exists.
        work: folder of the embeddings.
    """
    setting = bench.setting
    epochs = setting.recipe.stages[-1].epochs
    cells = []
    for dataset, rate in product(setting.datasets, TRIED):
        for seed in range(max(SIZES)):
            train = partial(_member, bench, losses, work, dataset, rate, seed)
            cells.append(Cell(_member_key(dataset, rate, seed), train, setting.seconds(dataset, epochs)))
        for size in SIZES:
            for number in range(max(SIZES) // size):
                members = range(size * number, size * (number + 1))
                measure = partial(_ensemble, bench, work, dataset, rate, members)
                needs = [_member_key(dataset, rate, seed) for seed in members]
                cells.append(Cell(_ensemble_key(dataset, rate, size, number), measure, 2.0, needs))
    note = (
        f"The default Group Loss; {setting.backbone} at {setting.recipe.size} px. Test classes, per cent, mean ±"
        " standard deviation over ensembles that share no network."
    )
    tables = partial(_tables, setting.datasets)
    return Experiment("embed_ensembles", "Ensembles of embeddings", cells, tables, described(setting), note)


def _member_key(dataset: str, rate: float, seed: int) -> str:
    return f"{dataset}/rate {rate:g}/network {seed}"


def _ensemble_key(dataset: str, rate: float, size: int, number: int) -> str:
    return f"{dataset}/rate {rate:g}/{size} networks/{number}"


def _member(
    bench: Bench, losses: Ledger, work: Path, dataset: str, rate: float, seed: int, ledger: Ledger
) -> dict[str, float]:
    chosen = losses.values(choice_key(dataset, OURS, rate))
    epochs = bench.setting.recipe.stages[-1].epochs if chosen is None else int(chosen["epoch"])
    _train(bench, work, dataset, _recipe(bench, dataset, rate, epochs, seed))
    return {"rate": rate, "epochs": epochs}


def _train(bench: Bench, work: Path, dataset: str, recipe: Recipe) -> None:
    """Train a network and store its embeddings of the test images."""
    embeddings = bench.embed_test(dataset, bench.train(dataset, recipe))
    write_weights(_file(bench, work, dataset, recipe), {"embeddings": embeddings}, {"seed": recipe.seed})


def _recipe(bench: Bench, dataset: str, rate: float, epochs: int, seed: int) -> Recipe:
    return with_training(contestant(bench.setting, dataset, OURS), rate=rate, epochs=epochs, seed=seed)


def _file(bench: Bench, work: Path, dataset: str, recipe: Recipe) -> Path:
    """Return the file of the embeddings, which depends on recipe, backbone and number of classes."""
    identity = json.dumps([bench.setting.backbone, bench.setting.classes, asdict(recipe)])
    digest = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
    return work / f"{dataset}-{recipe.seed}-{digest}.safetensors"


def _ensemble(bench: Bench, work: Path, dataset: str, rate: float, members: range, ledger: Ledger) -> dict[str, float]:
    parts = []
    for seed in members:
        trained = ledger.values(_member_key(dataset, rate, seed))
        if trained is None:
            raise FailedError(f"network {seed} failed; expected all networks of the ensemble")
        recipe = _recipe(bench, dataset, rate, int(trained["epochs"]), seed)
        file = _file(bench, work, dataset, recipe)
        if not file.exists():  # embeddings may have been deleted
            _train(bench, work, dataset, recipe)
        parts.append(read_weights(file)[0]["embeddings"])
    return bench.measure(dataset, concatenate_embeddings(parts).to(resolve_device(bench.setting.device)))


def _tables(datasets: Iterable[str], ledger: Ledger) -> Iterable[Table]:
    for dataset in datasets:
        rows: list[tuple[str, ...]] = [("networks", "learning rate", *METRICS)]
        for rate, size in product(TRIED, SIZES):
            keys = [_ensemble_key(dataset, rate, size, number) for number in range(max(SIZES) // size)]
            results = [values for values in map(ledger.values, keys) if values is not None]
            if results:
                figures = (mean_and_spread([run[metric] for run in results], scale=100) for metric in METRICS)
                rows.append((str(size), f"{rate:g}", *figures))
        if len(rows) > 1:
            yield Table(dataset, rows)


def run() -> None:
    """Run the experiment."""
    parser = arguments(__doc__)
    add_options(parser, epochs=8)
    parser.add_argument("--work", type=Path, default=WORK, help="Folder of the embeddings of single networks.")
    options = parser.parse_args()
    bench = Bench(setting_of(options))
    main(ensembles_experiment(bench, Ledger("embed_losses", results_folder(options)), options.work), options)


if __name__ == "__main__":
    run_command(run)
