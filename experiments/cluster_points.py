"""Clusters of 2D points: the first column of the table in the appendix, unequal sizes, n = 1,000 and k = 20.

python -m experiments.cluster_points --networks default,thesis --seeds 0 --minutes 8

Networks and their checkpoints are stored in --runs, rows in results/cluster_points.json; a command that was
interrupted, or has more networks or seeds, resumes from there. Several processes may run it in parallel: each trains
the next network that no other process trains.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from entourage.cluster import (
    ClusterNetwork,
    Curriculum,
    PointSampler,
    Recipe,
    evaluate,
    load_network,
    save_network,
    score,
)
from entourage.cluster.evaluation import draw_sets, mean_scores
from entourage.cluster.models.options import preset
from entourage.cluster.sampling.episodes import THESIS_POINTS_CURRICULUM
from entourage.cluster.sampling.points import MIN_CLUSTER_POINTS
from entourage.compute import resolve_device
from experiments.cluster_rows import (
    NETWORK,
    NETWORKS,
    TEST_SEED,
    Data,
    arguments,
    baseline_rows,
    measure_networks,
    network_row,
    open_ledger,
    run_dir_name,
    scores_of,
    scores_table,
    trained,
)
from experiments.command import run_command
from experiments.ledger import Ledger, timed
from experiments.tables import table

N, K = 72, 5
LARGE_N, LARGE_K = 1000, 20
UNEQUAL, UNEQUAL_N = "unequal: ", 200  # prefix of rows on sets with unequal clusters; points of such a set
SIZES = (72, 250, 500, 1000, 2000)  # set sizes whose time and memory are measured
PUBLISHED = {
    "thesis": ("0.004", "0.993"),
    "thesis+euclidean": ("0.177", "0.730"),
    "thesis+mahalanobis": ("0.185", "0.725"),
    "thesis+full": ("0.165", "0.740"),
    "random": ("0.485", "0.232"),
    "k-means, k given": ("0.178", "0.796"),
    "DBSCAN": ("0.265", "0.676"),
}

Measured = Callable[[ClusterNetwork], dict[str, Any]]
"""Function from a network to the values of a row."""


def main() -> None:
    """Train, measure and write the tables."""
    parser = arguments("Clusters of 2D points.", minutes=8)
    parser.add_argument("--large-sets", type=int, default=100, help="Number of test sets of 1,000 points.")
    parser.add_argument("--ship", type=Path, default=None, help="Save the default network of the best seed here.")
    options = parser.parse_args()
    ledger = open_ledger("cluster_points", options)
    test = PointSampler(K)
    if options.baselines:
        baseline_rows(ledger, Data(test, test, test), options.sets, N, lambda x: x)
        mixed = PointSampler(K, unequal=1)
        # A setting chosen on equal clusters would put the baselines at a disadvantage, so it is chosen again.
        baseline_rows(ledger, Data(mixed, mixed, mixed), options.sets, UNEQUAL_N, lambda x: x, UNEQUAL)
    measure_networks(ledger, options, lambda name, seed: measure(ledger, name, seed, options))
    if options.ship is not None:
        ship(ledger, options)
    ledger.write_table("Clusters of 2D points", _text)


def measure(ledger: Ledger, name: str, seed: int, options: argparse.Namespace) -> None:
    """Measure the missing rows of one network; train it if there are any."""
    rows = rows_of(name, seed, options)
    if not ledger.missing(rows):
        return
    network = train_or_load(name, seed, options.runs / run_dir_name(ledger.name, name, seed, options), options)
    for key, measure_row in rows.items():
        ledger.row(key, partial(measure_row, network))


def rows_of(name: str, seed: int, options: argparse.Namespace) -> dict[str, Measured]:
    """Return the measurements of a network by the keys of their rows."""
    key, attention = f"{name}, seed {seed}", _attends(name)

    def on(sampler: PointSampler, sets: int, n: int) -> Measured:
        return lambda network: scores_of(network, sampler, sets, n, options.device)

    rows: dict[str, Measured] = {key: lambda network: network_row(network, PointSampler(K), N, options)}
    if attention or NETWORKS[name].metric == "none":  # an LSTM with a metric block requires sets of one size
        rows[f"{UNEQUAL}{key}"] = on(PointSampler(K, unequal=1), options.sets, UNEQUAL_N)
    if attention:
        rows[f"large: {key}"] = on(PointSampler(LARGE_K), options.large_sets, LARGE_N)
        rows[f"twenty: {key}"] = on(PointSampler(LARGE_K, k_min=LARGE_K), options.large_sets, LARGE_N)
        rows[f"shuffled: {key}"] = lambda network: shuffled_row(network, options)
    for n in SIZES if name == "default" and seed == 0 else ():
        rows[f"growth {n}: {key}"] = partial(growth_row, n=n, device=options.device)
    return rows


def train_or_load(name: str, seed: int, run: Path, options: argparse.Namespace) -> ClusterNetwork:
    """Train the network, or load it from its run directory."""
    chosen, attention, test = NETWORKS[name], _attends(name), PointSampler(K)
    train = PointSampler(LARGE_K if attention else K, varied=chosen.varied, unequal=chosen.unequal)
    recipe = Recipe(curriculum=Curriculum() if attention else THESIS_POINTS_CURRICULUM, seed=seed)
    if options.small:
        tiny = replace(recipe.curriculum, sets=8, max_size=min(recipe.curriculum.max_size, 120))
        recipe = replace(recipe, curriculum=tiny, validation=10, epoch=20, warmup=5)
    if chosen.metric != "none":  # the appendix: N = 50 for metric learning with 2D points
        recipe = replace(recipe, curriculum=replace(recipe.curriculum, sets=min(50, recipe.curriculum.sets)))
    return trained(name, Data(train, test, test), recipe, run, options)


def _attends(name: str) -> bool:
    return preset(NETWORKS[name].preset).model.network == "attention"


@torch.no_grad()
def shuffled_row(network: ClusterNetwork, options: argparse.Namespace) -> dict[str, Any]:
    """Return the fractions of sets and of points whose clusters change when the points are shuffled."""
    device = resolve_device(options.device)
    network.to(device).eval()
    changed, moved, total = 0, 0.0, 0
    for sampler, n, sets in ((PointSampler(K), N, options.sets), (PointSampler(LARGE_K), LARGE_N, options.large_sets)):
        for episode in draw_sets(sampler, sets, n, seed=TEST_SEED):
            order = torch.randperm(n, generator=torch.Generator().manual_seed(n)).to(device)
            x = episode.x.to(device)
            first, second = network(x).clusters()[:, order].cpu(), network(x[:, order]).clusters().cpu()
            for a, b in zip(first.numpy(), second.numpy(), strict=True):
                mr = score(a, b).mr
                changed, moved, total = changed + (mr > 0), moved + mr, total + 1
    return {"sets": total, "sets_changed": changed / total, "points_moved": moved / total}


@torch.no_grad()
def growth_row(network: ClusterNetwork, n: int, device: str) -> dict[str, Any]:
    """Measure seconds and, on a GPU, peak memory of one set of n points."""
    torch_device = resolve_device(device)
    network = copy.deepcopy(network).to(torch_device).eval()
    x = next(draw_sets(PointSampler(LARGE_K), 1, n, seed=TEST_SEED)).x.to(torch_device)
    network(x)
    if torch_device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(torch_device)
    repeats = 5
    with timed(torch_device) as seconds:
        for _ in range(repeats):
            network(x)
        each = seconds() / repeats
    memory = torch.cuda.max_memory_allocated(torch_device) / 2**20 if torch_device.type == "cuda" else None
    return {"n": n, "seconds": each, "mebibytes": memory}


def ship(ledger: Ledger, options: argparse.Namespace) -> None:
    """Save the default network of the best seed on validation sets, for the package."""
    candidates = []
    for file in sorted(options.runs.glob(f"{run_dir_name(ledger.name, 'default', '*', options)}/{NETWORK}")):
        network = load_network(file)
        candidates.append((scores_of_validation(network, options), file.parent, network))
    if not candidates:
        raise ValueError(f"{options.runs}: no trained default network; expected one or more")
    mr, run, network = min(candidates, key=lambda one: one[0])
    network.notes |= {"items": "points", "backbone": "", "trained by": "experiments.cluster_points", "run": run.name}
    save_network(network.cpu(), options.ship, half=True)
    print(f"{run.name} (validation MR {mr:.4f}) saved as {options.ship}", flush=True)


def scores_of_validation(network: ClusterNetwork, options: argparse.Namespace) -> float:
    """Return the misclassification rate on validation sets with equal and unequal clusters, not on the test sets."""
    device = resolve_device(options.device)
    kinds = ((PointSampler(K), N), (PointSampler(K, unequal=1), UNEQUAL_N))
    scores_by_kind = [evaluate(network.to(device), sampler, options.sets, n, device=device) for sampler, n in kinds]
    return fmean(mean_scores(scores).mr for scores in scores_by_kind)


def _text(ledger: Ledger) -> str:
    parts = [
        f"Sets of n = {N} points, k = 1 to {K}; all methods are evaluated on the same test sets, which are not in "
        "the training data. MR is by optimal assignment; the appendix uses greedy MR and NMI by the geometric mean.\n",
        scores_table(ledger, "", PUBLISHED),
    ]
    if unequal := scores_table(ledger, UNEQUAL, {}):
        parts += [
            f"\nClusters of unequal size, {MIN_CLUSTER_POINTS} points or more, n = {UNEQUAL_N}, k = 1 to {K}. The "
            "settings of DBSCAN and HDBSCAN are chosen on such sets; the networks are those above.\n",
            unequal,
        ]
    if large := scores_table(ledger, "large: ", {}):
        parts += [f"\nn = {LARGE_N}, k = 1 to {LARGE_K}:\n", large]
        parts += [f"\nn = {LARGE_N}, k = {LARGE_K} in every set:\n", scores_table(ledger, "twenty: ", {})]
    growth = [(key, row) for key, row in ledger.rows.items() if key.startswith("growth")]
    if growth:
        memory = ["" if row["mebibytes"] is None else f"{row['mebibytes']:.0f}" for _, row in growth]
        times = [(str(row["n"]), f"{1000 * row['seconds']:.1f}") for _, row in growth]
        cells = [(*time, used) for time, used in zip(times, memory, strict=True)]
        parts += ["\nOne set through the default network:\n", table(("n", "milliseconds", "MiB"), cells)]
    for key, row in ledger.rows.items():
        if key.startswith("shuffled"):
            parts.append(
                f"\n{key.removeprefix('shuffled: ')}: shuffling the points changed the clusters in "
                f"{row['sets_changed']:.1%} of {row['sets']} sets, {row['points_moved']:.3%} of the points."
            )
    return "\n".join(parts)


if __name__ == "__main__":
    run_command(main)
