"""Networks that have learned before, and go on: on more examples, on others, or for longer.

From examples of what belongs together to a network that clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from entourage.cluster.data import (
    Items,
    Kind,
    folder_labels,
    hold_out,
    hold_out_parts,
    kind_of_folder,
    read_pairs,
    represent,
    represent_voices,
    table_labels,
)
from entourage.cluster.models.network import ClusterNetwork, find_weights, init_network, load_network, save_network
from entourage.cluster.models.options import Metric, preset
from entourage.cluster.sampling.augmentation import (
    ImageDisguise,
    ImageView,
    SoundDisguise,
    SoundView,
    plain_image,
    plain_sound,
)
from entourage.cluster.sampling.episodes import EpisodeSampler
from entourage.cluster.sampling.labelled import ConstraintSampler, Disguise, LabelledSampler, View, unchanged
from entourage.cluster.sampling.points import VARIED, PointSampler
from entourage.cluster.task import ClusterTask, Recipe, default_recipe, learn, resolve_model_options
from entourage.io.files import check_outputs
from entourage.io.fingerprint import digest

FINETUNING_FACTOR = 0.3  # of the learning rate, for what has learned before


def load_pretrained(source: str | Path) -> tuple[ClusterNetwork, str]:
    """A network to go on from, and a name by which it is known: that of its file, and a digest of its weights.

    Args:
        source: a file, or the name of a network that comes with the package.

    Raises:
        ValueError: there is no such network.
    """
    network = load_network(find_weights(source))
    return network, f"{Path(source).name}, {digest(*network.state_dict().values())}"


def preset_name(network: ClusterNetwork) -> str:
    """The preset that a network was made by; where its notes do not say, the one of its kind."""
    return network.notes.get("preset") or ("default" if network.options.network == "attention" else "thesis")


def finetuning_recipe(recipe: Recipe) -> Recipe:
    """The same for a network that has learned before: gently, and in sets of all sizes from the beginning."""
    grown = replace(recipe.curriculum, growth=(0.0, 0.0))
    return replace(recipe, learning_rate=FINETUNING_FACTOR * recipe.learning_rate, curriculum=grown)


def check_set_size(network: ClusterNetwork, recipe: Recipe) -> None:
    """Raises a ValueError if a network that reads rows of distances would be given sets of another size."""
    expected, sizes = network.options.set_size, recipe.curriculum
    if expected is not None and (sizes.min_size, sizes.max_size) != (expected, expected):
        raise ValueError(
            f"sets have {sizes.base_size} items; the network to begin with reads rows of {expected} distances"
        )


VALIDATION_FRACTION = 0.15  # of the classes, or of the parts that pairs make
DEFAULT_CLUSTERS = 5  # of a set of a user's own examples, at most


@dataclass(frozen=True)
class TrainConfig:
    """What is to be learned and how.

    Attributes:
        source: "points" for the generator of 2D sets; a table of points; a folder of images or sounds.
        out: the file for the network.
        labels: a CSV file with the columns item,label; None: a file's folder is its class.
        pairs: a CSV file with the columns first,second,same, in place of labels.
        start: a network to begin with, a file or the name of one that comes with the package, which brings its preset,
            metric block and backbone along; None begins with random weights.
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
    start: str | Path | None = None
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


def train_source(job: TrainConfig) -> dict[str, Any]:
    """Trains a network on examples and writes it; a call that was stopped goes on when it is repeated.

    Returns:
        What was learned from, how well it does, and on what that was measured.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    run = job.run or job.out.with_name(f"{job.out.stem}.run")
    _check_job(job, run)
    begun, origin = (None, "") if job.start is None else load_pretrained(job.start)
    if begun is not None:
        job = _going_on(job, begun)
    lessons = _lessons(job)
    sampler, validation, kind = lessons.learn, lessons.validate, lessons.kind
    chosen = preset(job.preset)
    recipe = default_recipe(sampler, chosen, steps=job.steps, seed=job.seed)
    about = {"items": kind, "backbone": job.backbone, "preset": job.preset}
    if begun is None:
        options = resolve_model_options(sampler, chosen, recipe.curriculum, metric=job.metric)
        network = init_network(sampler.shape, options, job.seed)
    else:
        network, recipe = begun, finetuning_recipe(recipe)
        check_set_size(network, recipe)
        about["from"] = origin
    loss = chosen.loss_for(points=kind == "points")
    task = ClusterTask(network, sampler, validation, loss, recipe, notes=about)
    network, result = learn(task, run, minutes=job.minutes, device=job.device, progress=job.progress)
    save_network(network.cpu(), job.out)
    told = {"items": kind, "steps": result.steps, "seconds": result.seconds, "measured_on": lessons.measured_on}
    return {**told, **result.metrics, "skipped": lessons.skipped}


def _going_on(job: TrainConfig, begun: ClusterNetwork) -> TrainConfig:
    """The job as it suits a network that has learned before; an LSTM counts to what it was made for."""
    counted = begun.options.k_max if begun.options.network == "lstm" else None
    backbone = begun.notes.get("backbone", "")
    return replace(job, preset=preset_name(begun), backbone=backbone, k_max=job.k_max or counted)


def _check_job(job: TrainConfig, run: Path) -> None:
    """Notices before any work that it would be in vain."""
    if job.out.is_dir():
        raise ValueError(f"{job.out}: is a folder; expected the name of a file for the network")
    check_outputs(run)
    source = None if job.source == "points" else Path(job.source)
    start = None if job.start is None else find_weights(job.start)
    check_outputs(job.out.parent, [job.out.name], [source, job.labels, job.pairs, start])
    if start is not None and (job.metric != "none" or job.backbone):
        given = "a metric block" if job.metric != "none" else f"backbone {job.backbone!r}"
        raise ValueError(f"{given} and a network to begin with are given; expected one, a network has its own")
    for one, other in (("labels", "pairs"), ("steps", "minutes")):
        if getattr(job, one) is not None and getattr(job, other) is not None:
            raise ValueError(f"both {one} and {other} are given; expected one of them")
    if source is None and (job.labels or job.pairs):
        given = "labels" if job.labels else "pairs"
        raise ValueError(f"{given} are given; points are made as it goes and know their own, expected none")


def _check_backbone(job: TrainConfig, kind: Kind) -> None:
    if job.backbone and kind != "images":
        raise ValueError(f"backbone {job.backbone!r} looks at images; {job.source} holds {kind}, expected no backbone")


@dataclass(frozen=True)
class _Lessons:
    """Episodes to learn from and to validate with, what the items are, and what was skipped.

    Attributes:
        measured_on: what the validating episodes are drawn from, to end "measured on".
    """

    learn: EpisodeSampler
    validate: EpisodeSampler
    kind: Kind
    measured_on: str
    skipped: list[dict[str, str]] = field(default_factory=list)


def _lessons(job: TrainConfig) -> _Lessons:
    if job.source == "points":
        _check_backbone(job, "points")
        most = job.k_max or preset(job.preset).model.k_max
        # The appendix' own network learns from the appendix' sets.
        varied = VARIED if preset(job.preset).model.network == "attention" else 0.0
        return _Lessons(PointSampler(most, varied=varied), PointSampler(most), "points", "unseen sets")
    source = Path(job.source)
    kind = kind_of_folder(source) if source.is_dir() else "points"
    _check_backbone(job, kind)
    if kind == "sounds":
        items = represent_voices(source, progress=job.progress)
    else:
        items = represent(source, kind, backbone=job.backbone, device=job.device, progress=job.progress)
    lessons = _of_pairs(items, job.pairs, job) if job.pairs else _of_classes(items, source, job)
    return replace(lessons, skipped=[{"item": name, "reason": reason} for name, reason in items.skipped])


def _of_classes(items: Items, source: Path, job: TrainConfig) -> _Lessons:
    if job.labels:
        rows, labels = table_labels(items, job.labels)
    elif items.files is None:
        raise ValueError(f"{source}: a table needs --labels or --pairs to say what belongs together")
    else:
        rows, labels = list(range(len(items.names))), folder_labels(items, source)
    most = job.k_max or DEFAULT_CLUSTERS
    learn_view, plain_view = _views(items)
    values, names = items.values[rows], np.array(labels)
    held = hold_out(labels, VALIDATION_FRACTION, 2, job.seed)
    known = min(most, len(set(names[~held])))
    seen = LabelledSampler(values[~held], names[~held], known, view=learn_view, disguise=_disguise(items))
    chosen = held if held.any() else ~held
    unseen = LabelledSampler(values[chosen], names[chosen], min(most, len(set(names[chosen]))), view=plain_view)
    measured_on = "unseen classes" if held.any() else "the classes learned from, too few to hold some out,"
    return _Lessons(seen, unseen, items.kind, measured_on)


def _of_pairs(items: Items, path: Path, job: TrainConfig) -> _Lessons:
    most = job.k_max or DEFAULT_CLUSTERS
    learn_view, plain_view = _views(items)
    must, cannot = read_pairs(items, path)
    held = hold_out_parts(must, cannot, len(items.names), VALIDATION_FRACTION, job.seed)
    # A pair of which one item is held out says something of both: it is used for neither.
    must_seen, cannot_seen = (links[~held[links].any(1)] for links in (must, cannot))
    learn = ConstraintSampler(items.values, must_seen, cannot_seen, most, view=learn_view)
    if held.any():
        must, cannot = (links[held[links].all(1)] for links in (must, cannot))
    validate = ConstraintSampler(items.values, must, cannot, most, view=plain_view)
    measured_on = "unseen pairs" if held.any() else "the pairs learned from, too few to hold some out,"
    return _Lessons(learn, validate, items.kind, measured_on)


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
