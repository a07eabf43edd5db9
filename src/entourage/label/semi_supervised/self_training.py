"""The labels that a round started with: kept beside its checkpoints, together with the game they are from.

Graph, game, network, and round again: each makes the next one better, until given labels say that it does not.

What the run in a folder was begun with: another one is refused before images are decoded and looked at.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.backbone import digest_weights
from entourage.io.files import atomic_path, read_json_object, write_json
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
)
from entourage.label.targets import Floats, Targets
from entourage.runs.directory import check_config, lock_directory, restart_hint
from entourage.training.accelerator import resolve_precision
from entourage.training.checkpoint import CHECKPOINT, fixed_options
from entourage.training.loop import train
from entourage.training.options import TrainingOptions

LABELS_FILE = "found.npz"
_SET_BY_ROUND = ("device", "classes")  # what a round sets itself


def digest_game(
    network: ImageNetwork,
    data: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    prior: Floats | None,
) -> str:
    """A short text that is another one if labels might be found otherwise.

    It is made of the images, their labels, the network that looks at them first, the labeller with all its arguments,
    the graph's options, and the prior.
    """
    params = list(labeller_params(labeller).items())
    graph = (options.n_neighbors, options.metric, options.balance)
    notes = (type(labeller).__name__, params, graph, data.views.digest(), data.n_classes)
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    digest.update(data.codes.tobytes())
    digest.update(digest_weights(network.body.state_dict()).encode())
    if prior is not None:
        digest.update(np.asarray(prior, dtype=np.float64).tobytes())
    return digest.hexdigest()


def labeller_params(labeller: GraphLabeller) -> dict[str, Any]:
    """What a labeller was told, sorted by name: all but what a round sets itself, arrays as lists."""
    params = sorted((name, value) for name, value in labeller.get_params().items() if name not in _SET_BY_ROUND)
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in params}


def load_or_store_labels(
    folder: Path | None, labels: PseudoLabels, score: float | None, game: str
) -> tuple[PseudoLabels, float | None]:
    """What a round was begun with: as it is now, or as it was when a stopped run of the same game started it.

    On a GPU the last digits of features differ from run to run, and with them a label now and then; a round must go on
    with the labels it started with. Labels of another game are replaced, unless there is a checkpoint that was trained
    on them: that is another run, which the training refuses to continue.

    Args:
        folder: of the round, or None to keep nothing.
        labels: the labels as they are now.
        score: how well hidden labels are found now.
        game: see `digest_game`.

    Returns:
        Labels that name their game, and the score that belongs to them.

    Raises:
        ValueError: what is kept in the folder is damaged.
    """
    labels = replace(labels, game_digest=game)
    if folder is None:
        return labels, score
    file = folder / LABELS_FILE
    if file.is_file():
        stored = _read(file)
        if "game" in stored and str(stored["game"]) == game:
            labels = PseudoLabels(stored["codes"], stored["distributions"], stored["confidence"], game)
            return labels, None if np.isnan(stored["score"]) else float(stored["score"])
    if not (folder / CHECKPOINT).is_file():
        _write(file, labels, score)
    return labels, score


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """What `_write` wrote. Without it a round cannot go on, nor can those after it: all begin anew."""
    try:
        return read_npz(file)
    except ValueError as error:
        raise ValueError(f"{error}; {restart_hint(file.parent.parent)}") from error


def _write(file: Path, labels: PseudoLabels, score: float | None) -> None:
    with atomic_path(file) as temporary:
        np.savez(
            temporary,
            codes=labels.codes,
            distributions=labels.distributions,
            confidence=labels.confidence,
            score=np.array(np.nan if score is None else score),
            game=np.array(labels.game_digest),
        )


_LABELS_MISMATCH = "labels that another game found (another graph, prior or backbone, or other given labels)"


@dataclass(frozen=True)
class Round:
    """What a round came to.

    Attributes:
        accepted: whether its network was kept.
        held_out: accuracy, over the graph of its features, on given labels that were hidden from the game; None if no
            class has two.
        confidence: mean confidence of the labels found over that graph.
        seconds: how long training, graph and game took.
    """

    accepted: bool
    held_out: float | None
    confidence: float
    seconds: float


@dataclass(frozen=True, eq=False)
class SelfTrainingResult:
    """What all rounds came to.

    Attributes:
        network: trained.
        features: what the network's body makes of every image, shape (n, d), on the CPU.
        pseudo_labels: a label for every image, over the graph of these features.
        labeller: what found them, fitted; its classes are numbers.
        rounds: each of them, the last perhaps not kept.
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
) -> SelfTrainingResult:
    """Label all images and train a network on it, in rounds.

    Each round trains the network on the labels found over the graph of its features. Then new features make a new
    graph, and a new game finds the labels of the next round. If given labels that are hidden from the game are found
    clearly less well there than over the best graph so far, the round was one too many: it is dropped, and the rounds
    end. (The first is kept in any case. Given labels have been trained on, so that the score flatters; but it flatters
    every round.)

    Args:
        network: where to start; its weights are left as they are.
        data: the images and the labels that are known.
        labeller: unfitted; the game or one of its rivals. Each round's graph is as its arguments say.
        options: how many rounds, and what each is like.
        device: where.
        prior: what is known beforehand of each image, shape (n, m), or None; every game starts from it.
        run_dir: a folder for checkpoints; stopped rounds of the same game continue from it.
        progress: show lines; None: only on a terminal.
    """
    check_affinity(labeller)
    features = compute_outputs(network.body, data.views, device, progress=progress)
    labels, score, fitted = fit_graph_labels(features, data, labeller, options, prior)
    game, rounds = digest_game(network, data, labeller, options, prior), list[Round]()
    best: float | None = None  # score of the graphs that labels were taken from
    for number in range(1, options.rounds + 1):
        started = time.perf_counter()
        trained = copy.deepcopy(network)
        folder = None if run_dir is None else run_dir / f"round-{number}"
        title = f"Round {number} of at most {options.rounds}"
        labels, score = load_or_store_labels(folder, labels, score, game)
        best = max((value for value in (best, score) if value is not None), default=None)
        task, schedule = _make_method(trained, data, labels, options, number)
        task.root_dir = run_dir  # each round goes on from the one before
        train(task, schedule, folder, device=device, progress=progress, title=title)
        trained.load_state_dict(task.final_model().state_dict())
        new_features = compute_outputs(trained.body, data.views, device, progress=progress)
        new_fit = fit_graph_labels(new_features, data, labeller, options, prior)
        accepted = number == 1 or not _is_worse(new_fit.score, best, count_held_out(data.codes))
        confidence = float(new_fit.pseudo_labels.confidence.mean())
        rounds.append(Round(accepted, new_fit.score, confidence, time.perf_counter() - started))
        if not accepted:
            break
        network, features, (labels, score, fitted) = trained, new_features, new_fit
    return SelfTrainingResult(network.eval(), features.cpu().numpy(), labels, fitted, rounds)


def _is_worse(score: float | None, best: float | None, n_labels: int) -> bool:
    """Whether a round was one too many, as far as given labels can tell."""
    return score is not None and best is not None and is_significantly_lower(score, best, n_labels)


def _make_method(
    network: ImageNetwork, data: SemiSupervisedData, labels: PseudoLabels, options: AugmentOptions, number: int
) -> tuple[SemiSupervisedMethod, TrainingOptions]:
    """The task of a round, and how it is trained: in a short round, both warm-ups are short too."""
    method_options = replace(options.method_options, seed=options.method_options.seed + number)
    task: SemiSupervisedMethod
    if options.method == "consistency":
        task = GraphConsistency(
            network,
            data,
            method_options,
            pseudo_labels=labels,
            class_priors=_class_priors(data) if options.balance else None,
        )
    else:
        task = GraphPseudoLabel(
            network,
            data,
            method_options,
            pseudo_labels=labels,
            pseudo_label_mode=options.pseudo_label_mode,
            pool_labels=options.pool_labels,
        )
    task.mismatch_messages = {"task.pseudo_labels": _LABELS_MISMATCH, **task.mismatch_messages}
    steps = options.training.epochs * task.steps()
    if isinstance(task, GraphConsistency):
        task.warmup_steps = min(task.warmup_steps, steps // 3)
    warmup = min(options.training.warmup_steps, steps // 5)
    return task, replace(options.training, seed=options.training.seed + number, warmup_steps=warmup)


def _class_priors(data: SemiSupervisedData) -> Tensor:
    """How frequent classes are among the given labels, shape (m,), as the game is told.

    Where a class has none, each is counted once more, so that nothing is held to 0.
    """
    counts = torch.bincount(torch.from_numpy(data.codes[data.labelled]), minlength=data.n_classes)
    smoothed = counts.float() if (counts > 0).all() else counts + 1.0
    return smoothed / smoothed.sum()


RUN_FILE = "begun.json"
_IMAGES = "images"  # known when all of them are decoded
_MISMATCH_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "count": "other images than there are now",
        _IMAGES: "other images than there are now",
        "labels": "other labels or classes than are given now",
        "prior": "another prior than is given now",
    }
)


def run_config(
    backbone: str,
    options: AugmentOptions,
    labeller: GraphLabeller,
    targets: Targets,
    prior: Floats | None,
    device: torch.device,
) -> dict[str, Any]:
    """All that the rounds of a run compare before they go on, but for the images: these come last.

    Args:
        backbone: name and weights of the network.
        options: all count but the number of rounds, of which there may be more.
        labeller: what labels all images, with all its arguments.
        targets: the labels that are known.
        prior: what is known beforehand, or None.
        device: where; it decides on the number format.

    Returns:
        Values by name, as they come back from JSON.
    """
    names: tuple[str, ...] = ("size", "trainable_layers", "n_neighbors", "metric", "balance", "method")
    if options.method == "labels":  # the other method does not read these
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
        "labels": _digest(targets.codes.tobytes() + str(len(targets.classes)).encode()),
        "prior": None if prior is None else _digest(np.ascontiguousarray(prior).tobytes()),
    }
    return dict(json.loads(json.dumps(values, default=repr)))


@contextmanager
def locked_run(run_dir: Path | None, config: Mapping[str, Any]) -> Iterator[Callable[[str], None]]:
    """Has a folder to itself until the block ends, if no other process has and nothing else was begun there.

    Args:
        run_dir: the folder of all rounds, or None: nothing is kept, and all is well.
        config: see `run_config`.

    Yields:
        What is to be called with the digest of the images, once they are decoded and before they are looked at: it
        refuses others than the run was begun with, and notes all of it where none was.

    Raises:
        ValueError: another process is training there, or something else was begun; it names what differs.
    """
    if run_dir is None:
        yield lambda images: None
        return
    folder = run_dir

    def check_images(images: str) -> None:
        current = {**config, _IMAGES: images}
        _check(folder, current)
        if is_main_process() and not _has_checkpoint(folder):
            write_json(folder / RUN_FILE, current)

    with lock_directory(folder) if is_main_process() else nullcontext():
        _check(folder, config)
        yield check_images


def _check(run_dir: Path, config: Mapping[str, Any]) -> None:
    """Refuse to go on where something else was begun: what is known by now is compared.

    Nothing is begun before there is a checkpoint. Of one by an earlier version nothing is known: its rounds compare.
    """
    stored = read_json_object(run_dir / RUN_FILE)
    if stored and _has_checkpoint(run_dir):
        check_config(
            run_dir,
            {name: value for name, value in stored.items() if name in config},
            config,
            _MISMATCH_MESSAGES,
            root=run_dir,
        )


def _has_checkpoint(run_dir: Path) -> bool:
    return any(run_dir.glob(f"round-*/{CHECKPOINT}"))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
