"""What the run in a folder was begun with: another one is refused before images are decoded and looked at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from entourage.io.files import read_object
from entourage.io.progress import is_main_process, process_count
from entourage.io.writing import write_json
from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.remember import game_arguments
from entourage.label.targets import Floats, Targets
from entourage.runs.identity import check_same_run
from entourage.training.accelerator import resolve_precision
from entourage.training.checkpoint import CHECKPOINT, fixed_options
from entourage.training.loop import alone_in

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


def circumstances(
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
def begun_in(run: Path | None, now: Mapping[str, Any]) -> Iterator[Callable[[str], None]]:
    """Has a folder to itself until the block ends, if no other process has and nothing else was begun there.

    Args:
        run: the folder of all rounds, or None: nothing is kept, and all is well.
        now: see `circumstances`.

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

    with alone_in(folder) if is_main_process() else nullcontext():
        _check(folder, now)
        yield check_images


def _check(run: Path, now: Mapping[str, Any]) -> None:
    """Refuse to go on where something else was begun: what is known by now is compared.

    Nothing is begun before there is a checkpoint. Of one by an earlier version nothing is known: its rounds compare.
    """
    then = read_object(run / BEGUN)
    if then and _is_begun(run):
        check_same_run(run, {name: value for name, value in then.items() if name in now}, now, _TOLD, whole=run)


def _is_begun(run: Path) -> bool:
    return any(run.glob(f"round-*/{CHECKPOINT}"))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
