"""Rows that the three tables of `cluster` share: a trained network, the baselines, and how they are shown."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.cluster import ClusterNetwork, Recipe, evaluate, load_network, save_network, score
from entourage.cluster.evaluation import (
    draw_sets,
    k_means,
    k_means_silhouette,
    mean_scores,
    random_clusters,
    tune_dbscan,
    tune_hdbscan,
)
from entourage.cluster.models.options import Metric, preset
from entourage.cluster.sampling.episodes import THESIS_ITEMS_CURRICULUM, Curriculum, Episode, EpisodeSampler
from entourage.cluster.sampling.points import VARIED_FRACTION
from entourage.cluster.task import ClusterTask, resolve_model_options, train_network
from entourage.cluster.train import finetuning_recipe, load_pretrained
from entourage.compute import resolve_device
from experiments.claims import alone
from experiments.ledger import Ledger, ledger_of, run_name
from experiments.tables import mean_and_spread, table

TEST_SEED, BASELINE_SEED = 2_000_003, 3_000_017  # of sets that no training and no validation has seen
EPISODE_N, EPISODE_K = 20, 5  # of images and snippets: items and clusters of a set
EXPERIMENT_CURRICULUM = Curriculum(
    base_size=EPISODE_N,
    base_clusters=EPISODE_K,
    base_fraction=0.6,
    min_size=10,
    max_size=40,
    sets=32,
    min_cluster_size=2,
)
NETWORK = "network.safetensors"  # in the folder of its run, when it is ready
TEST_SETS = 300
BASELINE_SETS = 100  # on which DBSCAN and HDBSCAN choose their setting

Features = Callable[[Tensor], Tensor]
"""From sets of items (b, n, ...) to the input of a baseline, shape (b, n, d)."""


@dataclass(frozen=True)
class Network:
    """A row of the table.

    Attributes:
        preset: the network and its loss.
        metric: the metric block it is given.
        varied: the share of 2D sets to learn from that differ more than the appendix' do...
        unequal: ...and of those with clusters of unequal size; None for the usual.
    """

    preset: str
    metric: Metric = "none"
    varied: float = 0.0
    unequal: float | None = None


NETWORKS = {
    "default": Network("default", varied=VARIED_FRACTION),
    "appendix": Network("default"),
    "varied": Network("default", varied=1.0, unequal=0.5),
    "thesis": Network("thesis"),
    "original": Network("original"),
    "thesis+euclidean": Network("thesis", "euclidean"),
    "thesis+mahalanobis": Network("thesis", "diagonal"),
    "thesis+full": Network("thesis", "full"),
    "default+euclidean": Network("default", "euclidean", VARIED_FRACTION),
    "default+mahalanobis": Network("default", "diagonal", VARIED_FRACTION),
    "default+full": Network("default", "full", VARIED_FRACTION),
}
NAMES = {
    "default": "default (attention)",
    "appendix": "default, the appendix' sets alone",
    "varied": "default, varied sets alone",
    "thesis": "LSTM, preset thesis",
    "original": "LSTM, preset original",
    "thesis+euclidean": "LSTM + Euclidean",
    "thesis+mahalanobis": "LSTM + Mahalanobis",
    "thesis+full": "LSTM + full metric",
    "default+euclidean": "default + Euclidean",
    "default+mahalanobis": "default + Mahalanobis",
    "default+full": "default + full metric",
}
BASELINES = ("random", "k-means, k given", "k-means, k by silhouette", "DBSCAN", "HDBSCAN")


@dataclass(frozen=True)
class Data:
    """Episodes to learn from, to validate with and to be tested on."""

    train: EpisodeSampler
    validation: EpisodeSampler
    test: EpisodeSampler


def arguments(text: str, minutes: float) -> argparse.ArgumentParser:
    """Options that the three experiments share."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--networks", default="default,thesis", help=f"some of {', '.join(NETWORKS)}; or none")
    parser.add_argument("--seeds", default="0", help="e.g. 0,1,2")
    parser.add_argument("--minutes", type=float, default=minutes, help="of training, for each network and seed")
    parser.add_argument("--from", dest="start", default=None, help="a network to begin with, not random weights")
    parser.add_argument("--sets", type=int, default=TEST_SETS, help="to be tested on")
    # The commands in results/ use the second spelling.
    parser.add_argument("--baselines", "--rivals", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for checkpoints and networks")
    parser.add_argument("--results", type=Path, default=None, help="folder for the results, if not results/")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    return parser


def open_ledger(name: str, options: argparse.Namespace) -> Ledger:
    """The rows so far; those on another number of sets than usual are not mixed with them."""
    settings = {"sets": options.sets} if options.sets != TEST_SETS else {}
    return ledger_of(name, options.results, settings, small=options.small)


def run_of(table: str, name: str, seed: int | str, options: argparse.Namespace) -> str:
    """What the folder of a network is called."""
    return run_name(f"{table}-{name}-{seed}", small=options.small)


def chosen_networks(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Names and seeds of the networks to train, seed by seed."""
    names = [] if options.networks == "none" else options.networks.split(",")
    if unknown := sorted(set(names) - set(NETWORKS)):
        raise ValueError(f"unknown networks: {', '.join(unknown)}; expected some of {', '.join(NETWORKS)}")
    return [(name, int(seed)) for seed in options.seeds.split(",") for name in names]


def measure_networks(ledger: Ledger, options: argparse.Namespace, measure: Callable[[str, int], None]) -> None:
    """Has all chosen networks measured that no other process is at."""
    chosen = chosen_networks(options)
    ledger.work_through({f"{name}, seed {seed}": partial(measure, name, seed) for name, seed in chosen})


def trained(name: str, data: Data, recipe: Recipe, run: Path, options: argparse.Namespace) -> ClusterNetwork:
    """Trains a network, or goes on, or loads it if it is ready: it is kept as network.safetensors in its folder.

    Raises:
        BusyError: another process is training it.
    """
    with alone(run):
        file = run / NETWORK
        return load_network(file) if file.is_file() else _train(name, data, recipe, run, options)


def _train(name: str, data: Data, recipe: Recipe, run: Path, options: argparse.Namespace) -> ClusterNetwork:
    network = NETWORKS[name]
    chosen = preset(network.preset)
    model = resolve_model_options(data.train, chosen, recipe.curriculum, metric=network.metric)
    if options.small:
        model = replace(model, width=32, depth=2, heads=4, layers=2, units=32, recurrent_units=16)
    torch.manual_seed(recipe.seed)
    title, log = f"{name}, seed {recipe.seed}", partial(print, flush=True)
    about = {"preset": network.preset}
    if options.start is None:
        built = ClusterNetwork(data.train.shape, model)
    else:
        built, about["from"] = load_pretrained(options.start)
        recipe = finetuning_recipe(recipe)
        if built.options != model:
            raise ValueError(f"{options.start}: holds another network than {name!r} is; expected one of its kind")
    loss = chosen.loss_for(points=len(data.train.shape) == 1)
    task = ClusterTask(
        built, data.train, data.validation, loss, recipe, notes=about, log=lambda s: log(f"{title}: {s}")
    )
    trained_network, result = train_network(task, run, minutes=options.minutes, device=options.device, title=title)
    trained_network.notes["date"] = date.today().isoformat()
    save_network(trained_network, run / NETWORK)
    print(f"{title}: {result.steps} steps in {result.seconds / 60:.1f} min, {result.metrics}", flush=True)
    return trained_network


def measure_episodes(ledger: Ledger, name: str, seed: int, data: Data, options: argparse.Namespace) -> None:
    """The row of one network that learns from images or sounds, in sets of the size of the appendix."""
    attention = preset(NETWORKS[name].preset).model.network == "attention"
    recipe = Recipe(
        curriculum=EXPERIMENT_CURRICULUM if attention else THESIS_ITEMS_CURRICULUM, seed=seed, validation=200
    )
    if options.small:
        recipe = replace(recipe, curriculum=replace(recipe.curriculum, sets=2), validation=4, epoch=5, warmup=2)
    key = f"{name}, seed {seed}"
    if ledger.free([key]):
        network = trained(name, data, recipe, options.runs / run_of(ledger.name, name, seed, options), options)
        ledger.row(key, lambda: network_row(network, data.test, EPISODE_N, options))


def scores_of(model: Any, sampler: EpisodeSampler, sets: int, n: int, device: str) -> dict[str, Any]:
    """Mean scores on the test sets, as a row."""
    torch_device = resolve_device(device)
    if isinstance(model, ClusterNetwork):
        model.to(torch_device).eval()
    found = evaluate(model, sampler, sets, n, device=torch_device, seed=TEST_SEED)
    return {"sets": sets, "n": n, **asdict(mean_scores(found))}


def network_row(
    network: ClusterNetwork, sampler: EpisodeSampler, n: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Scores of a trained network, and how it was trained."""
    steps, minutes = int(network.notes["steps"]), float(network.notes["seconds"]) / 60
    scores = scores_of(network, sampler, options.sets, n, options.device)
    return {"steps": steps, "training_minutes": minutes, **scores}


def baseline_rows(ledger: Ledger, data: Data, sets: int, n: int, features: Features, prefix: str = "") -> None:
    """Rows of chance, k-means, DBSCAN and HDBSCAN on the same test sets, which are drawn on the CPU."""
    k_max = data.test.k_max

    def run(baseline: Callable[[NDArray[np.float64], int], NDArray[Any]]) -> dict[str, Any]:
        found = []
        for episode in draw_sets(data.test, sets, n, seed=TEST_SEED):
            rows = zip(*_baseline_input(episode, features), episode.k.tolist(), strict=True)
            found += [score(truth, baseline(X, k)) for X, truth, k in rows]
        return {"sets": sets, "n": n, **asdict(mean_scores(found))}

    def tuned(best: Callable[..., Any]) -> dict[str, Any]:
        pairs = []
        for episode in draw_sets(data.validation, min(BASELINE_SETS, sets), n, seed=BASELINE_SEED):
            pairs += list(zip(*_baseline_input(episode, features), strict=True))
        baseline, name = best(pairs)
        return {"setting": name, **run(lambda X, k: baseline(X))}

    dice = np.random.default_rng(TEST_SEED)
    methods: dict[str, Callable[[], dict[str, Any]]] = {
        "random": partial(run, lambda X, k: random_clusters(X, k_max, seed=int(dice.integers(2**31)))),
        "k-means, k given": partial(run, k_means),
        "k-means, k by silhouette": partial(run, lambda X, k: k_means_silhouette(X, k_max)),
        "DBSCAN": partial(tuned, tune_dbscan),
        "HDBSCAN": partial(tuned, tune_hdbscan),
    }
    for name in BASELINES:
        ledger.row(f"{prefix}{name}", methods[name])


def _baseline_input(episode: Episode, features: Features) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The input of a baseline for each set, shape (b, n, d), and the truth, shape (b, n)."""
    if episode.labels is None:
        raise ValueError("the sets have no labels; expected a sampler of labelled items")
    return features(episode.x).double().numpy(), episode.labels.numpy()


def shown(ledger: Ledger, prefix: str, published: dict[str, tuple[str, str]]) -> str:
    """The table: one row a method, the mean over seeds, and what was published."""
    rows = []
    for name in (*NETWORKS, *BASELINES):
        key = f"{prefix}{name}"
        found = [row for one, row in ledger.rows.items() if one == key or one.startswith(f"{key}, seed ")]
        if found:
            measures = ("mr", "greedy_mr", "nmi", "nmi_geometric", "ari", "k_right", "k_error")
            cells = [mean_and_spread([row[measure] for row in found], digits=3) for measure in measures]
            note = f" ({found[0]['setting']})" if "setting" in found[0] else ""
            steps = f"{np.mean([row['steps'] for row in found]):,.0f}" if "steps" in found[0] else ""
            rows.append((NAMES.get(name, name) + note, str(len(found)), steps, *cells, *published.get(name, ("", ""))))
    header = (
        "method",
        "seeds",
        "steps",
        "MR",
        "greedy MR",
        "NMI",
        "NMI, geometric",
        "ARI",
        "k right",
        "error in k",
        "published MR",
        "NMI",
    )
    return table(header, rows) if rows else ""
