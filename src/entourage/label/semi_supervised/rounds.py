"""Graph, game, network, and round again: each makes the next one better, until given labels say that it does not."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.augmented import Augmented
from entourage.label.semi_supervised.consistency import Consistency
from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.features import outputs
from entourage.label.semi_supervised.find import checked_affinity, find_labels
from entourage.label.semi_supervised.given import FoundLabels
from entourage.label.semi_supervised.method import Method
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.remember import game_digest, remembered
from entourage.label.semi_supervised.validate import clearly_less, hidden_labels
from entourage.label.targets import Floats
from entourage.training.loop import train
from entourage.training.options import TrainingOptions

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
class Augmentation:
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
    found: FoundLabels
    labeller: GraphLabeller
    rounds: list[Round]


def play_rounds(
    network: ImageNetwork,
    examples: Examples,
    labeller: GraphLabeller,
    options: AugmentOptions,
    device: torch.device,
    *,
    prior: Floats | None = None,
    run: Path | None = None,
    progress: bool | None = None,
) -> Augmentation:
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
        found, score = remembered(folder, found, score, game)
        best = max((known for known in (best, score) if known is not None), default=None)
        task, schedule = _method(trained, examples, found, options, number)
        task.whole = run  # each round goes on from the one before
        train(task, schedule, folder, device=device, progress=progress, title=title)
        trained.load_state_dict(task.outcome().state_dict())
        new_features = outputs(trained.body, examples.looks, device, progress=progress)
        new = find_labels(new_features, examples, labeller, options, prior)
        kept = number == 1 or not _worse(new.score, best, hidden_labels(examples.codes))
        rounds.append(Round(kept, new.score, float(new.found.confidence.mean()), time.perf_counter() - began))
        if not kept:
            break
        network, features, (found, score, fitted) = trained, new_features, new
    return Augmentation(network.eval(), features.cpu().numpy(), found, fitted, rounds)


def _worse(now: float | None, before: float | None, labels: int) -> bool:
    """Whether a round was one too many, as far as given labels can tell."""
    return now is not None and before is not None and clearly_less(now, before, labels)


def _method(
    network: ImageNetwork, examples: Examples, found: FoundLabels, options: AugmentOptions, number: int
) -> tuple[Method, TrainingOptions]:
    """The task of a round, and how it is trained: in a short round, both warm-ups are short too."""
    batches = replace(options.batches, seed=options.batches.seed + number)
    task: Method
    if options.method == "consistency":
        task = Consistency(
            network, examples, batches, found=found, shares=_shares(examples) if options.balance else None
        )
    else:
        task = Augmented(network, examples, batches, found=found, trust=options.trust, alike=options.alike)
    task.told_apart = {"task.found": _OTHER_LABELS, **task.told_apart}
    steps = options.training.epochs * task.steps()
    if isinstance(task, Consistency):
        task.warmup_steps = min(task.warmup_steps, steps // 3)
    warmup = min(options.training.warmup_steps, steps // 5)
    return task, replace(options.training, seed=options.training.seed + number, warmup_steps=warmup)


def _shares(examples: Examples) -> Tensor:
    """How frequent classes are among the given labels, shape (m,), as the game is told.

    Where a class has none, each is counted once more, so that nothing is held to 0.
    """
    given = torch.bincount(torch.from_numpy(examples.codes[examples.labelled]), minlength=examples.classes)
    counted = given.float() if (given > 0).all() else given + 1.0
    return counted / counted.sum()
