"""Shared parts of the `cluster` experiments: networks, baselines and tables."""

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
from experiments.ledger import Ledger, ledger_of, run_name
from experiments.locks import exclusive
from experiments.tables import mean_and_spread, table

TEST_SEED, BASELINE_SEED = 2_000_003, 3_000_017  # seeds of sets that differ from those of training and validation
EPISODE_N, EPISODE_K = 20, 5  # images or snippets: items and maximum number of clusters of a set
EXPERIMENT_CURRICULUM = Curriculum(
    base_size=EPISODE_N,
    base_clusters=EPISODE_K,
    base_fraction=0.6,
    min_size=10,
    max_size=40,
    sets=32,
    min_cluster_size=2,
)
NETWORK = "network.safetensors"  # in the run directory, when training has ended
TEST_SETS = 300
BASELINE_SETS = 100  # sets on which the settings of DBSCAN and HDBSCAN are chosen

Features = Callable[[Tensor], Tensor]
"""Function from sets of items (b, n, ...) to the input of a baseline, shape (b, n, d)."""


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes:
        preset: preset of the network and its loss.
        metric: its metric block.
        varied: fraction of 2D training sets with more variation than in the appendix.
        unequal: fraction of 2D training sets with clusters of unequal size; None for the default.
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
    "appendix": "default, sets of the appendix only",
    "varied": "default, varied sets only",
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
    """Samplers of training, validation and test episodes."""

    train: EpisodeSampler
    validation: EpisodeSampler
    test: EpisodeSampler


def arguments(text: str, minutes: float) -> argparse.ArgumentParser:
    """Return a parser with the options that the three experiments share."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--networks", default="default,thesis", help=f"Some of {', '.join(NETWORKS)}; or none.")
    parser.add_argument("--seeds", default="0", help="Random seeds, e.g. 0,1,2.")
    parser.add_argument("--minutes", type=float, default=minutes, help="Training time of each network and seed.")
    parser.add_argument("--from", dest="start", default=None, help="Initial network; default: random weights.")
    parser.add_argument("--sets", type=int, default=TEST_SETS, help="Number of test sets.")
    parser.add_argument(
        "--baselines", action=argparse.BooleanOptionalAction, default=True, help="Measure the baselines."
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="Folder of checkpoints and networks.")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results; default: results/.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="Trial run with tiny networks.")
    return parser


def open_ledger(name: str, options: argparse.Namespace) -> Ledger:
    """Open the ledger; another number of test sets than the default is a setting of its own file."""
    settings = {"sets": options.sets} if options.sets != TEST_SETS else {}
    return ledger_of(name, options.results, settings, small=options.small)


def run_dir_name(table: str, name: str, seed: int | str, options: argparse.Namespace) -> str:
    """Return the name of the run directory of a network."""
    return run_name(f"{table}-{name}-{seed}", small=options.small)


def chosen_networks(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return names and seeds of the networks to train, ordered by seed."""
    names = [] if options.networks == "none" else options.networks.split(",")
    if unknown := sorted(set(names) - set(NETWORKS)):
        raise ValueError(f"--networks: {', '.join(unknown)} unknown; expected some of {', '.join(NETWORKS)}")
    return [(name, int(seed)) for seed in options.seeds.split(",") for name in names]


def measure_networks(ledger: Ledger, options: argparse.Namespace, measure: Callable[[str, int], None]) -> None:
    """Measure all chosen networks that no other process measures."""
    chosen = chosen_networks(options)
    ledger.run_jobs({f"{name}, seed {seed}": partial(measure, name, seed) for name, seed in chosen})


def trained(name: str, data: Data, recipe: Recipe, run: Path, options: argparse.Namespace) -> ClusterNetwork:
    """Train a network, resume its training, or load network.safetensors from its run directory.

    Raises:
        BusyError: another process is training it.
    """
    with exclusive(run):
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
    notes = {"preset": network.preset}
    if options.start is None:
        built = ClusterNetwork(data.train.shape, model)
    else:
        built, notes["from"] = load_pretrained(options.start)
        recipe = finetuning_recipe(recipe)
        if built.options != model:
            raise ValueError(f"{options.start}: another network than {name!r}; expected equal model options")
    loss = chosen.loss_for(points=len(data.train.shape) == 1)
    task = ClusterTask(
        built, data.train, data.validation, loss, recipe, notes=notes, log=lambda s: log(f"{title}: {s}")
    )
    trained_network, result = train_network(task, run, minutes=options.minutes, device=options.device, title=title)
    trained_network.notes["date"] = date.today().isoformat()
    save_network(trained_network, run / NETWORK)
    print(f"{title}: {result.steps} steps in {result.seconds / 60:.1f} min, {result.metrics}", flush=True)
    return trained_network


def measure_episodes(ledger: Ledger, name: str, seed: int, data: Data, options: argparse.Namespace) -> None:
    """Train a network on images or sounds, in sets of the size of the appendix, and measure its row."""
    attention = preset(NETWORKS[name].preset).model.network == "attention"
    recipe = Recipe(
        curriculum=EXPERIMENT_CURRICULUM if attention else THESIS_ITEMS_CURRICULUM, seed=seed, validation=200
    )
    if options.small:
        recipe = replace(recipe, curriculum=replace(recipe.curriculum, sets=2), validation=4, epoch=5, warmup=2)
    key = f"{name}, seed {seed}"
    if ledger.missing([key]):
        network = trained(name, data, recipe, options.runs / run_dir_name(ledger.name, name, seed, options), options)
        ledger.row(key, lambda: network_row(network, data.test, EPISODE_N, options))


def scores_of(model: Any, sampler: EpisodeSampler, sets: int, n: int, device: str) -> dict[str, Any]:
    """Return the values of a row: mean scores on the test sets."""
    torch_device = resolve_device(device)
    if isinstance(model, ClusterNetwork):
        model.to(torch_device).eval()
    scores = evaluate(model, sampler, sets, n, device=torch_device, seed=TEST_SEED)
    return {"sets": sets, "n": n, **asdict(mean_scores(scores))}


def network_row(
    network: ClusterNetwork, sampler: EpisodeSampler, n: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the scores of a trained network with its steps and training minutes."""
    steps, minutes = int(network.notes["steps"]), float(network.notes["seconds"]) / 60
    scores = scores_of(network, sampler, options.sets, n, options.device)
    return {"steps": steps, "training_minutes": minutes, **scores}


def baseline_rows(ledger: Ledger, data: Data, sets: int, n: int, features: Features, prefix: str = "") -> None:
    """Measure random clusters, k-means, DBSCAN and HDBSCAN on the same test sets, which are sampled on the CPU."""
    k_max = data.test.k_max

    def run(baseline: Callable[[NDArray[np.float64], int], NDArray[Any]]) -> dict[str, Any]:
        scores = []
        for episode in draw_sets(data.test, sets, n, seed=TEST_SEED):
            rows = zip(*_baseline_input(episode, features), episode.k.tolist(), strict=True)
            scores += [score(truth, baseline(X, k)) for X, truth, k in rows]
        return {"sets": sets, "n": n, **asdict(mean_scores(scores))}

    def tuned(best: Callable[..., Any]) -> dict[str, Any]:
        pairs = []
        for episode in draw_sets(data.validation, min(BASELINE_SETS, sets), n, seed=BASELINE_SEED):
            pairs += list(zip(*_baseline_input(episode, features), strict=True))
        baseline, name = best(pairs)
        return {"setting": name, **run(lambda X, k: baseline(X))}

    rng = np.random.default_rng(TEST_SEED)
    methods: dict[str, Callable[[], dict[str, Any]]] = {
        "random": partial(run, lambda X, k: random_clusters(X, k_max, seed=int(rng.integers(2**31)))),
        "k-means, k given": partial(run, k_means),
        "k-means, k by silhouette": partial(run, lambda X, k: k_means_silhouette(X, k_max)),
        "DBSCAN": partial(tuned, tune_dbscan),
        "HDBSCAN": partial(tuned, tune_hdbscan),
    }
    for name in BASELINES:
        ledger.row(f"{prefix}{name}", methods[name])


def _baseline_input(episode: Episode, features: Features) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the input of a baseline, shape (b, n, d), and the true clusters, shape (b, n)."""
    if episode.labels is None:
        raise ValueError("episode: has no labels; expected a sampler of labelled items")
    return features(episode.x).double().numpy(), episode.labels.numpy()


def scores_table(ledger: Ledger, prefix: str, published: dict[str, tuple[str, str]], protocol: str = "") -> str:
    """Return the table: for each method the mean over seeds and the published figures.

    Args:
        ledger: the rows.
        prefix: prefix of their keys.
        published: MR and NMI by the name of the network or baseline.
        protocol: difference of the published protocol, such as "on TIMIT", for the header.
    """
    rows = []
    for name in (*NETWORKS, *BASELINES):
        key = f"{prefix}{name}"
        seeds = [row for other, row in ledger.rows.items() if other == key or other.startswith(f"{key}, seed ")]
        if seeds:
            measures = ("mr", "greedy_mr", "nmi", "nmi_geometric", "ari", "k_right", "k_error")
            cells = [mean_and_spread([row[measure] for row in seeds], digits=3) for measure in measures]
            note = f" ({seeds[0]['setting']})" if "setting" in seeds[0] else ""
            steps = f"{np.mean([row['steps'] for row in seeds]):,.0f}" if "steps" in seeds[0] else ""
            rows.append((NAMES.get(name, name) + note, str(len(seeds)), steps, *cells, *published.get(name, ("", ""))))
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
        f"published MR {protocol}".strip(),
        f"published NMI {protocol}".strip(),
    )
    return table(header, rows) if rows else ""
