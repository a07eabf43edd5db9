"""Networks that have learned before, and go on: on more examples, on others, or for longer.

From examples of what belongs together to a network that clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from entourage.cluster.data import (
    ItemKind,
    Items,
    detect_kind,
    folder_labels,
    hold_out_classes,
    hold_out_components,
    load_items,
    load_sounds,
    read_pairs,
    table_labels,
)
from entourage.cluster.models.network import ClusterNetwork, find_weights, init_network, load_network, save_network
from entourage.cluster.models.options import Metric, preset
from entourage.cluster.sampling.augmentation import (
    ImageAugmentation,
    ImageClassAugmentation,
    SoundAugmentation,
    SoundClassAugmentation,
    unaugmented_image,
    unaugmented_sound,
)
from entourage.cluster.sampling.episodes import EpisodeSampler
from entourage.cluster.sampling.labelled import (
    ClassAugmentation,
    ConstraintSampler,
    ItemAugmentation,
    LabelledSampler,
    unaugmented,
)
from entourage.cluster.sampling.points import VARIED_FRACTION, PointSampler
from entourage.cluster.task import ClusterTask, Recipe, default_recipe, resolve_model_options, train_network
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
        run_dir: the folder for checkpoints; None for one beside `out`.
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
    run_dir: Path | None = None
    progress: bool | None = None


def train_source(config: TrainConfig) -> dict[str, Any]:
    """Trains a network on examples and writes it; a call that was stopped goes on when it is repeated.

    Returns:
        What was learned from, how well it does, and on what that was measured.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    run_dir = config.run_dir or config.out.with_name(f"{config.out.stem}.run")
    _check_config(config, run_dir)
    pretrained, origin = (None, "") if config.start is None else load_pretrained(config.start)
    if pretrained is not None:
        config = _adapt_to_start(config, pretrained)
    samplers = _make_samplers(config)
    sampler, validation, kind = samplers.train, samplers.validation, samplers.kind
    chosen = preset(config.preset)
    recipe = default_recipe(sampler, chosen, steps=config.steps, seed=config.seed)
    notes = {"items": kind, "backbone": config.backbone, "preset": config.preset}
    if pretrained is None:
        options = resolve_model_options(sampler, chosen, recipe.curriculum, metric=config.metric)
        network = init_network(sampler.shape, options, config.seed)
    else:
        network, recipe = pretrained, finetuning_recipe(recipe)
        check_set_size(network, recipe)
        notes["from"] = origin
    loss = chosen.loss_for(points=kind == "points")
    task = ClusterTask(network, sampler, validation, loss, recipe, notes=notes)
    network, result = train_network(
        task, run_dir, minutes=config.minutes, device=config.device, progress=config.progress
    )
    save_network(network.cpu(), config.out)
    summary = {"items": kind, "steps": result.steps, "seconds": result.seconds, "measured_on": samplers.measured_on}
    return {**summary, **result.metrics, "skipped": samplers.skipped}


def _adapt_to_start(config: TrainConfig, pretrained: ClusterNetwork) -> TrainConfig:
    """The job as it suits a network that has learned before; an LSTM counts to what it was made for."""
    k_max = pretrained.options.k_max if pretrained.options.network == "lstm" else None
    backbone = pretrained.notes.get("backbone", "")
    return replace(config, preset=preset_name(pretrained), backbone=backbone, k_max=config.k_max or k_max)


def _check_config(config: TrainConfig, run_dir: Path) -> None:
    """Notices before any work that it would be in vain."""
    if config.out.is_dir():
        raise ValueError(f"{config.out}: is a folder; expected the name of a file for the network")
    check_outputs(run_dir)
    source = None if config.source == "points" else Path(config.source)
    start = None if config.start is None else find_weights(config.start)
    check_outputs(config.out.parent, [config.out.name], [source, config.labels, config.pairs, start])
    if start is not None and (config.metric != "none" or config.backbone):
        given = "a metric block" if config.metric != "none" else f"backbone {config.backbone!r}"
        raise ValueError(f"{given} and a network to begin with are given; expected one, a network has its own")
    for one, other in (("labels", "pairs"), ("steps", "minutes")):
        if getattr(config, one) is not None and getattr(config, other) is not None:
            raise ValueError(f"both {one} and {other} are given; expected one of them")
    if source is None and (config.labels or config.pairs):
        given = "labels" if config.labels else "pairs"
        raise ValueError(f"{given} are given; points are made as it goes and know their own, expected none")


def _check_backbone(config: TrainConfig, kind: ItemKind) -> None:
    if config.backbone and kind != "images":
        raise ValueError(
            f"backbone {config.backbone!r} looks at images; {config.source} holds {kind}, expected no backbone"
        )


@dataclass(frozen=True)
class _Samplers:
    """Episodes to learn from and to validate with, what the items are, and what was skipped.

    Attributes:
        measured_on: what the validating episodes are drawn from, to end "measured on".
    """

    train: EpisodeSampler
    validation: EpisodeSampler
    kind: ItemKind
    measured_on: str
    skipped: list[dict[str, str]] = field(default_factory=list)


def _make_samplers(config: TrainConfig) -> _Samplers:
    if config.source == "points":
        _check_backbone(config, "points")
        k_max = config.k_max or preset(config.preset).model.k_max
        # The appendix' own network learns from the appendix' sets.
        varied = VARIED_FRACTION if preset(config.preset).model.network == "attention" else 0.0
        return _Samplers(PointSampler(k_max, varied=varied), PointSampler(k_max), "points", "unseen sets")
    source = Path(config.source)
    kind = detect_kind(source) if source.is_dir() else "points"
    _check_backbone(config, kind)
    if kind == "sounds":
        items = load_sounds(source, progress=config.progress)
    else:
        items = load_items(source, kind, backbone=config.backbone, device=config.device, progress=config.progress)
    samplers = _pair_samplers(items, config.pairs, config) if config.pairs else _class_samplers(items, source, config)
    return replace(samplers, skipped=[{"item": name, "reason": reason} for name, reason in items.skipped])


def _class_samplers(items: Items, source: Path, config: TrainConfig) -> _Samplers:
    if config.labels:
        rows, labels = table_labels(items, config.labels)
    elif items.files is None:
        raise ValueError(f"{source}: a table needs --labels or --pairs to say what belongs together")
    else:
        rows, labels = list(range(len(items.names))), folder_labels(items, source)
    k_max = config.k_max or DEFAULT_CLUSTERS
    augmentation, no_augmentation = _item_augmentations(items)
    values, names = items.values[rows], np.array(labels)
    held_out = hold_out_classes(labels, VALIDATION_FRACTION, 2, config.seed)
    train_k_max = min(k_max, len(set(names[~held_out])))
    train = LabelledSampler(
        values[~held_out],
        names[~held_out],
        train_k_max,
        augmentation=augmentation,
        class_augmentation=_class_augmentation(items),
    )
    chosen = held_out if held_out.any() else ~held_out
    validation = LabelledSampler(
        values[chosen], names[chosen], min(k_max, len(set(names[chosen]))), augmentation=no_augmentation
    )
    measured_on = "unseen classes" if held_out.any() else "the classes learned from, too few to hold some out,"
    return _Samplers(train, validation, items.kind, measured_on)


def _pair_samplers(items: Items, path: Path, config: TrainConfig) -> _Samplers:
    k_max = config.k_max or DEFAULT_CLUSTERS
    augmentation, no_augmentation = _item_augmentations(items)
    must, cannot = read_pairs(items, path)
    held_out = hold_out_components(must, cannot, len(items.names), VALIDATION_FRACTION, config.seed)
    # A pair of which one item is held out says something of both: it is used for neither.
    train_must, train_cannot = (links[~held_out[links].any(1)] for links in (must, cannot))
    train = ConstraintSampler(items.values, train_must, train_cannot, k_max, augmentation=augmentation)
    if held_out.any():
        must, cannot = (links[held_out[links].all(1)] for links in (must, cannot))
    validation = ConstraintSampler(items.values, must, cannot, k_max, augmentation=no_augmentation)
    measured_on = "unseen pairs" if held_out.any() else "the pairs learned from, too few to hold some out,"
    return _Samplers(train, validation, items.kind, measured_on)


def _item_augmentations(items: Items) -> tuple[ItemAugmentation, ItemAugmentation]:
    if items.kind == "sounds":
        return SoundAugmentation(), unaugmented_sound
    if items.kind == "images" and items.values.ndim == 4:
        return ImageAugmentation(), unaugmented_image
    return unaugmented, unaugmented


def _class_augmentation(items: Items) -> ClassAugmentation | None:
    if items.kind == "sounds":
        return SoundClassAugmentation()
    return ImageClassAugmentation() if items.kind == "images" and items.values.ndim == 4 else None
