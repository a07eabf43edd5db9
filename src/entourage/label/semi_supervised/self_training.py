"""The labels that a round began with: kept beside its checkpoints, together with the game they are from.

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
from entourage.label.semi_supervised.graph_methods import Augmented, Consistency
from entourage.label.semi_supervised.method import SemiSupervisedMethod
from entourage.label.semi_supervised.network import ImageNetwork, outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import (
    PseudoLabels,
    checked_affinity,
    clearly_less,
    find_labels,
    hidden_labels,
)
from entourage.label.targets import Floats, Targets
from entourage.runs.directory import check_config, restart_hint
from entourage.training.accelerator import resolve_precision
from entourage.training.checkpoint import CHECKPOINT, fixed_options
from entourage.training.loop import locked_run_dir, train
from entourage.training.options import TrainingOptions

FOUND = "found.npz"
_ELSEWHERE = ("device", "classes")  # what a round sets itself


def game_digest(
    network: ImageNetwork,
    examples: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    prior: Floats | None,
) -> str:
    """A short text that is another one if labels might be found otherwise.

    It is made of the images, their labels, the network that looks at them first, the labeller with all its arguments,
    the graph's options, and the prior.
    """
    plain = list(game_arguments(labeller).items())
    graph = (options.neighbours, options.metric, options.balance)
    notes = (type(labeller).__name__, plain, graph, examples.looks.digest(), examples.classes)
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    digest.update(examples.codes.tobytes())
    digest.update(digest_weights(network.body.state_dict()).encode())
    if prior is not None:
        digest.update(np.asarray(prior, dtype=np.float64).tobytes())
    return digest.hexdigest()


def game_arguments(labeller: GraphLabeller) -> dict[str, Any]:
    """What a labeller was told, sorted by name: all but what a round sets itself, arrays as lists."""
    told = sorted((name, value) for name, value in labeller.get_params().items() if name not in _ELSEWHERE)
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in told}


def load_or_store_labels(
    folder: Path | None, found: PseudoLabels, score: float | None, game: str
) -> tuple[PseudoLabels, float | None]:
    """What a round was begun with: as it is now, or as it was when a stopped run of the same game began it.

    On a GPU the last digits of features differ from run to run, and with them a label now and then; a round must go on
    with the labels it began with. Labels of another game are replaced, unless there is a checkpoint that was trained on
    them: that is another run, which the training refuses to continue.

    Args:
        folder: of the round, or None to keep nothing.
        found: the labels as they are now.
        score: how well hidden labels are found now.
        game: see `game_digest`.

    Returns:
        Labels that name their game, and the score that belongs to them.

    Raises:
        ValueError: what is kept in the folder is damaged.
    """
    found = replace(found, game=game)
    if folder is None:
        return found, score
    file = folder / FOUND
    if file.is_file():
        kept = _read(file)
        if "game" in kept and str(kept["game"]) == game:
            begun = PseudoLabels(kept["codes"], kept["distributions"], kept["confidence"], game)
            return begun, None if np.isnan(kept["score"]) else float(kept["score"])
    if not (folder / CHECKPOINT).is_file():
        _write(file, found, score)
    return found, score


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """What `_write` wrote. Without it a round cannot go on, nor can those after it: all begin anew."""
    try:
        return read_npz(file)
    except ValueError as error:
        raise ValueError(f"{error}; {restart_hint(file.parent.parent)}") from error


def _write(file: Path, found: PseudoLabels, score: float | None) -> None:
    with atomic_path(file) as temporary:
        np.savez(
            temporary,
            codes=found.codes,
            distributions=found.distributions,
            confidence=found.confidence,
            score=np.array(np.nan if score is None else score),
            game=np.array(found.game),
        )


_OTHER_LABELS = "labels that another game found (another graph, prior or backbone, or other given labels)"


@dataclass(frozen=True)
class Round:
    """What a round came to.

    Attributes:
        kept: whether its network was kept.
        held_out: accuracy, over the graph of its features, on given labels that were hidden from the game; None if no
            class has two.
        confidence: mean confidence of the labels found over that graph.
        seconds: how long training, graph and game took.
    """

    kept: bool
    held_out: float | None
    confidence: float
    seconds: float


@dataclass(frozen=True, eq=False)
class SelfTrainingResult:
    """What all rounds came to.

    Attributes:
        network: trained.
        features: what the network's body makes of every image, shape (n, d), on the CPU.
        found: a label for every image, over the graph of these features.
        labeller: what found them, fitted; its classes are numbers.
        rounds: each of them, the last perhaps not kept.
    """

    network: ImageNetwork
    features: NDArray[np.float32]
    found: PseudoLabels
    labeller: GraphLabeller
    rounds: list[Round]


def self_train(
    network: ImageNetwork,
    examples: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    device: torch.device,
    *,
    prior: Floats | None = None,
    run: Path | None = None,
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
        examples: the images and the labels that are known.
        labeller: unfitted; the game or one of its rivals. Each round's graph is as its arguments say.
        options: how many rounds, and what each is like.
        device: where.
        prior: what is known beforehand of each image, shape (n, m), or None; every game starts from it.
        run: a folder for checkpoints; stopped rounds of the same game continue from it.
        progress: show lines; None: only on a terminal.
    """
    checked_affinity(labeller)
    features = outputs(network.body, examples.looks, device, progress=progress)
    found, score, fitted = find_labels(features, examples, labeller, options, prior)
    game, rounds = game_digest(network, examples, labeller, options, prior), list[Round]()
    best: float | None = None  # score of the graphs that labels were taken from
    for number in range(1, options.rounds + 1):
        began = time.perf_counter()
        trained = copy.deepcopy(network)
        folder, title = None if run is None else run / f"round-{number}", f"Round {number} of at most {options.rounds}"
        found, score = load_or_store_labels(folder, found, score, game)
        best = max((known for known in (best, score) if known is not None), default=None)
        task, schedule = _method(trained, examples, found, options, number)
        task.root_dir = run  # each round goes on from the one before
        train(task, schedule, folder, device=device, progress=progress, title=title)
        trained.load_state_dict(task.final_model().state_dict())
        new_features = outputs(trained.body, examples.looks, device, progress=progress)
        new = find_labels(new_features, examples, labeller, options, prior)
        kept = number == 1 or not _worse(new.score, best, hidden_labels(examples.codes))
        rounds.append(Round(kept, new.score, float(new.found.confidence.mean()), time.perf_counter() - began))
        if not kept:
            break
        network, features, (found, score, fitted) = trained, new_features, new
    return SelfTrainingResult(network.eval(), features.cpu().numpy(), found, fitted, rounds)


def _worse(now: float | None, before: float | None, labels: int) -> bool:
    """Whether a round was one too many, as far as given labels can tell."""
    return now is not None and before is not None and clearly_less(now, before, labels)


def _method(
    network: ImageNetwork, examples: SemiSupervisedData, found: PseudoLabels, options: AugmentOptions, number: int
) -> tuple[SemiSupervisedMethod, TrainingOptions]:
    """The task of a round, and how it is trained: in a short round, both warm-ups are short too."""
    batches = replace(options.batches, seed=options.batches.seed + number)
    task: SemiSupervisedMethod
    if options.method == "consistency":
        task = Consistency(
            network, examples, batches, found=found, shares=_shares(examples) if options.balance else None
        )
    else:
        task = Augmented(network, examples, batches, found=found, trust=options.trust, alike=options.alike)
    task.mismatch_messages = {"task.found": _OTHER_LABELS, **task.mismatch_messages}
    steps = options.training.epochs * task.steps()
    if isinstance(task, Consistency):
        task.warmup_steps = min(task.warmup_steps, steps // 3)
    warmup = min(options.training.warmup_steps, steps // 5)
    return task, replace(options.training, seed=options.training.seed + number, warmup_steps=warmup)


def _shares(examples: SemiSupervisedData) -> Tensor:
    """How frequent classes are among the given labels, shape (m,), as the game is told.

    Where a class has none, each is counted once more, so that nothing is held to 0.
    """
    given = torch.bincount(torch.from_numpy(examples.codes[examples.labelled]), minlength=examples.classes)
    counted = given.float() if (given > 0).all() else given + 1.0
    return counted / counted.sum()


BEGUN = "begun.json"
IMAGES = "images"  # known when all of them are decoded
_TOLD: Mapping[str, str] = MappingProxyType(
    {
        "count": "other images than there are now",
        IMAGES: "other images than there are now",
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
    chosen = ("size", "trained", "neighbours", "metric", "balance", "method")
    found = ("trust", "alike") if options.method == "labels" else ()  # nothing to the other method
    values = {
        "backbone": backbone,
        **{name: getattr(options, name) for name in (*chosen, *found)},
        "views": asdict(options.views),
        "batches": asdict(options.batches),
        **fixed_options(options.training),
        "precision": resolve_precision(options.training.precision, device),
        "processes": process_count(),
        "labeller": type(labeller).__name__,
        "game": game_arguments(labeller),
        "count": len(targets.codes),
        "labels": _digest(targets.codes.tobytes() + str(len(targets.classes)).encode()),
        "prior": None if prior is None else _digest(np.ascontiguousarray(prior).tobytes()),
    }
    return dict(json.loads(json.dumps(values, default=repr)))


@contextmanager
def locked_run(run: Path | None, now: Mapping[str, Any]) -> Iterator[Callable[[str], None]]:
    """Has a folder to itself until the block ends, if no other process has and nothing else was begun there.

    Args:
        run: the folder of all rounds, or None: nothing is kept, and all is well.
        now: see `run_config`.

    Yields:
        What is to be called with the digest of the images, once they are decoded and before they are looked at: it
        refuses others than the run was begun with, and notes all of it where none was.

    Raises:
        ValueError: another process is training there, or something else was begun; it names what differs.
    """
    if run is None:
        yield lambda images: None
        return
    folder = run

    def check_images(images: str) -> None:
        known = {**now, IMAGES: images}
        _check(folder, known)
        if is_main_process() and not _is_begun(folder):
            write_json(folder / BEGUN, known)

    with locked_run_dir(folder) if is_main_process() else nullcontext():
        _check(folder, now)
        yield check_images


def _check(run: Path, now: Mapping[str, Any]) -> None:
    """Refuse to go on where something else was begun: what is known by now is compared.

    Nothing is begun before there is a checkpoint. Of one by an earlier version nothing is known: its rounds compare.
    """
    then = read_json_object(run / BEGUN)
    if then and _is_begun(run):
        check_config(run, {name: value for name, value in then.items() if name in now}, now, _TOLD, whole=run)


def _is_begun(run: Path) -> bool:
    return any(run.glob(f"round-*/{CHECKPOINT}"))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
