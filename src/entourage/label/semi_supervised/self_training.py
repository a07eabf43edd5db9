"""Self-training in rounds: graph labels train the network, and its features build the graph of the next round.

A run directory holds the configuration of the run and one folder per round, with its pseudo-labels and checkpoints.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.backbone import digest_weights
from entourage.io.fingerprint import fingerprint
from entourage.io.progress import is_main_process, process_count
from entourage.io.safe_formats import read_npz
from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.graph_methods import GraphConsistency, GraphPseudoLabel
from entourage.label.semi_supervised.method import SemiSupervisedMethod
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import (
    PseudoLabels,
    check_affinity,
    count_held_out,
    fit_graph_labels,
    is_significantly_lower,
    join_features,
)
from entourage.label.targets import Floats, Targets
from entourage.runs.directory import RunDirectory, restart_hint
from entourage.runs.records import RecordStore
from entourage.training.accelerator import resolve_precision
from entourage.training.checkpoint import CHECKPOINT, fixed_options
from entourage.training.loop import train
from entourage.training.options import TrainingOptions

RUN_FILE = "begun.json"
_LABELS = "found"  # key of the record of a round's pseudo-labels
_SET_BY_ROUND = ("device", "classes")  # arguments of the labeller that self-training sets
LABELS_MISMATCH = "pseudo-labels of another configuration (graph, labeller, prior, backbone or given labels)"
_MISMATCH_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "count": "other images than there are now",
        "images": "other images than there are now",
        "labels": "other labels or classes than are given now",
        "prior": "another prior than is given now",
    }
)


@dataclass(frozen=True)
class Round:
    """Result of a round.

    Attributes:
        accepted: whether the network of the round was accepted.
        held_out: cross-validated accuracy on the given labels, over the graph of the round's features; None if no class
            has two labels.
        confidence: mean confidence of the labels over that graph.
        seconds: time of the training, the graph and the labelling.
    """

    accepted: bool
    held_out: float | None
    confidence: float
    seconds: float


@dataclass(frozen=True, eq=False)
class SelfTrainingResult:
    """Result of `self_train`.

    Attributes:
        network: the trained network, in evaluation mode.
        features: outputs of its body for all images, shape (n, d), on the CPU.
        pseudo_labels: a label for every image, over the graph of these features.
        labeller: the labeller fitted to that graph; its classes are numbers.
        rounds: all rounds; the last one may be rejected.
    """

    network: ImageNetwork
    features: NDArray[np.float32]
    pseudo_labels: PseudoLabels
    labeller: GraphLabeller
    rounds: list[Round]


def self_train(
    network: ImageNetwork,
    data: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    device: torch.device,
    *,
    prior: Floats | None = None,
    run_dir: Path | None = None,
    progress: bool | None = None,
    more_features: Mapping[str, Tensor] = MappingProxyType({}),
) -> SelfTrainingResult:
    """Label all images over a graph of their features and train a network on these labels, in rounds.

    Each round trains the network on the labels over the graph of the previous features, and computes new features, a
    new graph and new labels. A round is rejected, and is the last one, if its cross-validated accuracy on the given
    labels is significantly lower than the best one so far. The first round is always accepted. As the network has been
    trained on the given labels, these accuracies are too high, in all rounds.

    Args:
        network: the initial network; its weights do not change.
        data: the images and the given labels.
        labeller: an unfitted labeller; its arguments determine the graph of each round.
        options: number of rounds, method and training.
        device: the device of all computations.
        prior: prior of each image, shape (n, m), or None.
        run_dir: folder for checkpoints, from which an interrupted run is resumed; None writes nothing.
        progress: show progress; None: only on a terminal.
        more_features: by name, features of the images by other networks, each of shape (n, d), for the graph of the
            first labels only.

    Returns:
        The network of the last accepted round, with its features and labels.
    """
    check_affinity(labeller)
    features = compute_outputs(network.body, data.views, device, progress=progress)
    seen = join_features(features, *(more.to(device) for more in more_features.values())) if more_features else features
    labels, score, fitted = fit_graph_labels(seen, data, labeller, options, prior)
    game, rounds = digest_game(network, data, labeller, options, prior, tuple(more_features)), list[Round]()
    best: float | None = None  # highest score of the graphs that labels were taken from
    for number in range(1, options.rounds + 1):
        started = time.perf_counter()
        trained = copy.deepcopy(network)
        folder = None if run_dir is None else run_dir / f"round-{number}"
        labels, score = load_or_store_labels(folder, labels, score, game)
        best = max((value for value in (best, score) if value is not None), default=None)
        task, schedule = _make_method(trained, data, labels, options, number)
        task.root_dir = run_dir  # each round depends on the previous ones
        title = f"Round {number} of at most {options.rounds}"
        train(task, schedule, folder, device=device, progress=progress, title=title)
        trained.load_state_dict(task.final_model().state_dict())
        new_features = compute_outputs(trained.body, data.views, device, progress=progress)
        new_fit = fit_graph_labels(new_features, data, labeller, options, prior)
        worse = (
            new_fit.score is not None
            and best is not None
            and is_significantly_lower(new_fit.score, best, count_held_out(data.codes))
        )
        accepted = number == 1 or not worse
        confidence = float(new_fit.pseudo_labels.confidence.mean())
        rounds.append(Round(accepted, new_fit.score, confidence, time.perf_counter() - started))
        if not accepted:
            break
        network, features, (labels, score, fitted) = trained, new_features, new_fit
    return SelfTrainingResult(network.eval(), features.cpu().numpy(), labels, fitted, rounds)


def _make_method(
    network: ImageNetwork, data: SemiSupervisedData, labels: PseudoLabels, options: AugmentOptions, number: int
) -> tuple[SemiSupervisedMethod, TrainingOptions]:
    """Return the task and the training options of a round; short rounds have shorter warm-ups."""
    method_options = replace(options.method_options, seed=options.method_options.seed + number)
    task: SemiSupervisedMethod
    if options.method == "consistency":
        task = GraphConsistency(
            network,
            data,
            method_options,
            pseudo_labels=labels,
            class_priors=given_class_priors(data) if options.balance else None,
        )
        task.warmup_steps = min(task.warmup_steps, options.training.epochs * task.steps() // 3)
    else:
        task = GraphPseudoLabel(
            network,
            data,
            method_options,
            pseudo_labels=labels,
            pseudo_label_mode=options.pseudo_label_mode,
            pool_labels=options.pool_labels,
        )
    task.mismatch_messages = {"task.pseudo_labels": LABELS_MISMATCH, **task.mismatch_messages}
    warmup = min(options.training.warmup_steps, options.training.epochs * task.steps() // 5)
    return task, replace(options.training, seed=options.training.seed + number, warmup_steps=warmup)


def given_class_priors(data: SemiSupervisedData) -> Tensor:
    """Return the class frequencies of the given labels, shape (m,), with add-one smoothing if a class has no label."""
    counts = torch.bincount(torch.from_numpy(data.codes[data.labelled]), minlength=data.n_classes)
    smoothed = counts.float() if (counts > 0).all() else counts + 1.0
    return smoothed / smoothed.sum()


def digest_game(
    network: ImageNetwork,
    data: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    prior: Floats | None,
    others: tuple[str, ...] = (),
) -> str:
    """Return a digest of everything that determines the labels of the rounds.

    These are the images and their labels, the initial network and the names of others, the labeller with its arguments,
    the options of the graph, and the prior.
    """
    params = list(labeller_params(labeller).items())
    graph = (options.n_neighbors, options.metric, options.balance)
    notes: tuple[object, ...] = (type(labeller).__name__, params, graph, data.views.digest(), data.n_classes)
    notes = (*notes, others) if others else notes
    priors = () if prior is None else (np.asarray(prior, dtype=np.float64),)
    return fingerprint(repr(notes), data.codes, digest_weights(network.body.state_dict()), *priors)


def labeller_params(labeller: GraphLabeller) -> dict[str, Any]:
    """Return the arguments of a labeller, sorted by name, without those that a round sets; arrays become lists."""
    params = sorted((name, value) for name, value in labeller.get_params().items() if name not in _SET_BY_ROUND)
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in params}


def load_or_store_labels(
    folder: Path | None, labels: PseudoLabels, score: float | None, game: str
) -> tuple[PseudoLabels, float | None]:
    """Return the pseudo-labels that a round was started with, or store the current ones if it was not started.

    On a GPU the last digits of features vary from run to run, and so may a few labels; a resumed round therefore needs
    the labels that it was started with. Labels with another digest are replaced, unless the round has a checkpoint that
    was trained on them: the training then raises an error, as the run has another configuration.

    Args:
        folder: folder of the round; None stores nothing.
        labels: the current pseudo-labels.
        score: the current cross-validated accuracy.
        game: see `digest_game`.

    Returns:
        Labels with the digest, and their accuracy.

    Raises:
        ValueError: the stored labels are damaged.
    """
    labels = replace(labels, game_digest=game)
    if folder is None:
        return labels, score
    store = RecordStore[dict[str, Any]](folder, ".npz", read_npz, lambda path, arrays: np.savez(path, **arrays))
    stored, file = store.get(_LABELS), store.path(_LABELS)
    if stored is None and file.is_file():  # the later rounds depend on them
        raise ValueError(f"{file}: damaged; {restart_hint(folder.parent)}")
    if stored is not None and "game" in stored and str(stored["game"]) == game:
        labels = PseudoLabels(stored["codes"], stored["distributions"], stored["confidence"], game)
        return labels, None if np.isnan(stored["score"]) else float(stored["score"])
    if not (folder / CHECKPOINT).is_file():
        arrays = {
            "codes": labels.codes,
            "distributions": labels.distributions,
            "confidence": labels.confidence,
            "score": np.array(np.nan if score is None else score),
            "game": np.array(game),
        }
        store.put(_LABELS, arrays)
    return labels, score


def run_directory(path: Path | None, config: Mapping[str, Any]) -> RunDirectory:
    """Return the run directory of all rounds.

    The caller passes the digest of the images to `check(images=...)` once they are decoded, and then calls `commit`. A
    directory without checkpoints counts as new.

    Args:
        path: the folder, or None: nothing is locked, compared or written.
        config: see `run_config`.
    """
    return RunDirectory(
        path,
        config,
        file=RUN_FILE,
        messages=_MISMATCH_MESSAGES,
        root=path,
        owner=is_main_process(),
        deferred=("images",),
        resumable=lambda: path is not None and any(path.glob(f"round-*/{CHECKPOINT}")),
    )


def run_config(
    backbone: str,
    options: AugmentOptions,
    labeller: GraphLabeller,
    targets: Targets,
    prior: Floats | None,
    device: torch.device,
) -> dict[str, Any]:
    """Return the values that must be equal for a run to be resumed, except the digest of the images.

    Args:
        backbone: name and weights of the network.
        options: all options but the number of rounds, which may be increased.
        labeller: the labeller, with its arguments.
        targets: the given labels.
        prior: prior of each image, or None.
        device: the device; it determines the precision.

    Returns:
        Values by name, as JSON returns them.
    """
    names: tuple[str, ...] = ("size", "trainable_layers", "n_neighbors", "metric", "balance", "method")
    if options.method == "labels":  # the other method does not use these
        names = (*names, "pseudo_label_mode", "pool_labels")
    values = {
        "backbone": backbone,
        **{name: getattr(options, name) for name in names},
        "views": asdict(options.view_options),
        "method_options": asdict(options.method_options),
        **fixed_options(options.training),
        "precision": resolve_precision(options.training.precision, device),
        "processes": process_count(),
        "labeller": type(labeller).__name__,
        "game": labeller_params(labeller),
        "count": len(targets.codes),
        "labels": fingerprint(targets.codes, str(len(targets.classes))),
        "prior": None if prior is None else fingerprint(prior),
    }
    return dict(json.loads(json.dumps(values, default=repr)))
