"""From examples of what belongs together to a network that clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entourage.cluster.augment import ImageView, SoundView, plain_image, plain_sound
from entourage.cluster.constraints import ConstraintSampler
from entourage.cluster.curriculum import EPISODE, FIXED, Curriculum
from entourage.cluster.disguise import ImageDisguise, SoundDisguise
from entourage.cluster.episodes import Episode, EpisodeSampler
from entourage.cluster.examples import folder_labels, hold_out, read_pairs, table_labels
from entourage.cluster.labelled import Disguise, LabelledSampler, View, unchanged
from entourage.cluster.learn import learn
from entourage.cluster.model import ClusterNetwork, save_network
from entourage.cluster.options import Metric, preset
from entourage.cluster.points import PointSampler
from entourage.cluster.represent import Items, Kind, kind_of_folder, represent, represent_voices
from entourage.cluster.task import ClusterTask, Recipe

SETS = Curriculum(home=20, home_k=5, home_share=0.5, least=8, most=60, sets=25, crowd=2)  # of a user's own examples
VALIDATION_SHARE = 0.15  # of the classes
POINT_STEPS, STEPS = 20_000, 4_000


@dataclass(frozen=True)
class TrainJob:
    """What is to be learned and how.

    Attributes:
        source: "points" for the generator of 2D sets; a table of points; a folder of images or sounds.
        out: the file for the network.
        labels: a CSV file with the columns item,label; None: a file's folder is its class.
        pairs: a CSV file with the columns first,second,same, in place of labels.
        preset: the network and its loss.
        metric: the optional metric block.
        backbone: the network that looks at images first; "" to learn that too.
        k_max: the most clusters of a set.
        steps: of training; None for the default of the kind of data.
        minutes: of training, in place of steps.
        device: where to train.
        seed: of everything.
        run: the folder for checkpoints; None for one beside `out`.
        progress: show bars; None: only on a terminal.
    """

    source: str
    out: Path
    labels: Path | None = None
    pairs: Path | None = None
    preset: str = "default"
    metric: Metric = "none"
    backbone: str = ""
    k_max: int | None = None
    steps: int | None = None
    minutes: float | None = None
    device: str = "auto"
    seed: int = 0
    run: Path | None = None
    progress: bool | None = None


def train_source(job: TrainJob) -> dict[str, Any]:
    """Trains a network on examples and writes it; a call that was stopped goes on when it is repeated.

    Returns:
        What was learned from, and how well it does on classes it has not seen.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    if job.out.is_dir():
        raise ValueError(f"{job.out}: is a folder; expected the name of a file for the network")
    if job.labels and job.pairs:
        raise ValueError("both labels and pairs are given; expected one of them")
    sampler, validation, kind, skipped = _samplers(job)
    chosen = preset(job.preset)
    curriculum = _curriculum(job)
    steps = job.steps or (POINT_STEPS if job.source == "points" else STEPS)
    recipe = Recipe(steps=steps, curriculum=curriculum, seed=job.seed)
    k_max = max(sampler.k_max, chosen.model.k_max) if chosen.model.network == "attention" else sampler.k_max
    fixed_size = curriculum.home if chosen.model.network == "lstm" and job.metric != "none" else None
    options = replace(chosen.model, k_max=k_max, metric=job.metric, set_size=fixed_size)
    torch.manual_seed(job.seed)
    network = ClusterNetwork(sampler.shape, options)
    about = {"items": kind, "backbone": job.backbone}
    task = ClusterTask(network, sampler, validation, chosen.loss, recipe, about=about)
    run = job.run or job.out.with_name(f"{job.out.stem}.run")
    network, result = learn(task, run, minutes=job.minutes, device=job.device, progress=job.progress)
    network.notes = {
        **about,
        "preset": job.preset,
        "steps": str(result.steps),
        "set_size": str(curriculum.most),
    }
    save_network(network.cpu(), job.out)
    return {"items": kind, "steps": result.steps, "seconds": result.seconds, **result.metrics, "skipped": skipped}


def _samplers(job: TrainJob) -> tuple[EpisodeSampler, EpisodeSampler, Kind, list[dict[str, str]]]:
    """Episodes to learn from and to validate with, what the items are, and what was skipped."""
    if job.source == "points":
        most = job.k_max or preset(job.preset).model.k_max
        noisier = preset(job.preset).model.network == "attention"  # the appendix' own learns from its own sets
        return PointSampler(most, noisier=noisier), PointSampler(most), "points", []
    source = Path(job.source)
    kind = kind_of_folder(source) if source.is_dir() else "points"
    if kind == "sounds":
        items = represent_voices(source, progress=job.progress)
    else:
        items = represent(source, kind, backbone=job.backbone, device=job.device, progress=job.progress)
    skipped = [{"item": name, "reason": reason} for name, reason in items.skipped]
    learn_view, plain_view = _views(items)
    most = job.k_max or 5
    if job.pairs:
        pairs = ConstraintSampler(items.values, *read_pairs(items, job.pairs), most, view=learn_view)
        return pairs, _PairsOnly(pairs), kind, skipped
    if job.labels:
        rows, labels = table_labels(items, job.labels)
    elif items.files is None:
        raise ValueError(f"{source}: a table needs --labels or --pairs to say what belongs together")
    else:
        rows, labels = list(range(len(items.names))), folder_labels(items, source)
    values, names = items.values[rows], np.array(labels)
    held = hold_out(labels, VALIDATION_SHARE, 2, job.seed)
    known = min(most, len(set(names[~held])))
    seen = LabelledSampler(values[~held], names[~held], known, view=learn_view, disguise=_disguise(items))
    chosen = held if held.any() else ~held
    unseen = LabelledSampler(values[chosen], names[chosen], min(most, len(set(names[chosen]))), view=plain_view)
    return seen, unseen, kind, skipped


class _PairsOnly:
    """Sets to validate with where there are no labels: parts stand for clusters."""

    def __init__(self, pairs: ConstraintSampler) -> None:
        self.pairs = pairs
        self.k_max, self.shape = pairs.k_max, pairs.shape
        self.same_share, self.describe = pairs.same_share, pairs.describe

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """As the sampler of pairs, with the parts as labels: an unknown pair counts as apart."""
        episode = self.pairs.draw(sets, n, generator, k_max)
        return replace(episode, labels=episode.same.int().argmax(-1))


def _views(items: Items) -> tuple[View, View]:
    if items.kind == "sounds":
        return SoundView(), plain_sound
    if items.kind == "images" and items.values.ndim == 4:
        return ImageView(), plain_image
    return unchanged, unchanged


def _disguise(items: Items) -> Disguise | None:
    if items.kind == "sounds":
        return SoundDisguise()
    return ImageDisguise() if items.kind == "images" and items.values.ndim == 4 else None


def _curriculum(job: TrainJob) -> Curriculum:
    network = preset(job.preset).model.network
    if job.source == "points":
        return Curriculum() if network == "attention" else FIXED
    return SETS if network == "attention" else EPISODE
