"""The labels that a round began with: kept beside its checkpoints, together with the game they are from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.backbones.backbone import digest_weights
from entourage.io.npz import read_npz
from entourage.io.writing import atomic_path
from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.given import FoundLabels
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.targets import Floats
from entourage.runs.identity import to_begin_anew
from entourage.training.checkpoint import CHECKPOINT

FOUND = "found.npz"
_ELSEWHERE = ("device", "classes")  # what a round sets itself


def game_digest(
    network: ImageNetwork,
    examples: Examples,
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


def remembered(
    folder: Path | None, found: FoundLabels, score: float | None, game: str
) -> tuple[FoundLabels, float | None]:
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
            begun = FoundLabels(kept["codes"], kept["distributions"], kept["confidence"], game)
            return begun, None if np.isnan(kept["score"]) else float(kept["score"])
    if not (folder / CHECKPOINT).is_file():
        _write(file, found, score)
    return found, score


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """What `_write` wrote. Without it a round cannot go on, nor can those after it: all begin anew."""
    try:
        return read_npz(file)
    except ValueError as error:
        raise ValueError(f"{error}; {to_begin_anew(file.parent.parent)}") from error


def _write(file: Path, found: FoundLabels, score: float | None) -> None:
    with atomic_path(file) as temporary:
        np.savez(
            temporary,
            codes=found.codes,
            distributions=found.distributions,
            confidence=found.confidence,
            score=np.array(np.nan if score is None else score),
            game=np.array(found.game),
        )
