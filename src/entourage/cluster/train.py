"""The command `cluster train`: train a network on labelled items, pairs or generated points, or finetune one."""

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

FINETUNING_FACTOR = 0.3  # of the learning rate, for pretrained networks


def load_pretrained(source: str | Path) -> tuple[ClusterNetwork, str]:
    """Load a pretrained network, with an identifier: the name of its file and a digest of its weights.

    Args:
        source: file, or name of a shipped network.

    Raises:
        ValueError: the network does not exist.
    """
    network = load_network(find_weights(source))
    return network, f"{Path(source).name}, {digest(*network.state_dict().values())}"


def preset_name(network: ClusterNetwork) -> str:
    """Return the preset of a network from its notes; if they have none, that of its architecture."""
    return network.notes.get("preset") or ("default" if network.options.network == "attention" else "thesis")


def finetuning_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe for a pretrained network: a lower learning rate, and sets of all sizes from the start."""
    grown = replace(recipe.curriculum, growth=(0.0, 0.0))
    return replace(recipe, learning_rate=FINETUNING_FACTOR * recipe.learning_rate, curriculum=grown)


def check_set_size(network: ClusterNetwork, recipe: Recipe) -> None:
    """Raise ValueError if the sets do not have the fixed set size of the network."""
    expected, sizes = network.options.set_size, recipe.curriculum
    if expected is not None and (sizes.min_size, sizes.max_size) != (expected, expected):
        raise ValueError(
            f"curriculum has sets of {sizes.base_size} items; expected {expected}, the fixed set size of the network"
        )


VALIDATION_FRACTION = 0.15  # of the classes, or of the connected components of must-links
DEFAULT_CLUSTERS = 5  # maximum number of clusters in a set of the user's items


@dataclass(frozen=True)
class TrainConfig:
    """Options of `train_source`.

    Attributes:
        source: "points" for generated 2D sets; a table of points; a folder of images or sounds.
        out: file for the network.
        labels: CSV file with the columns item,label; None: the folder of a file is its class.
        pairs: CSV file with the columns first,second,same, instead of labels.
        start: pretrained network, a file or the name of a shipped network, whose preset, metric block and backbone are
            used; None for random initial weights.
        preset: network and loss: "default", "thesis" or "original".
        metric: optional metric block.
        backbone: pretrained network that extracts features from images; "" to train on the images themselves.
        k_max: maximum number of clusters in a set.
        steps: training steps; None for the default of the kind of data.
        minutes: training time, instead of steps.
        device: "auto", "cpu", "cuda", ...
        seed: random seed of the training.
        run_dir: folder for checkpoints; None for `out` with the suffix `.run`.
        progress: show progress bars; None: only on a terminal.
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
    """Train a network on labelled items, pairs or generated points, and save it; repeated calls resume.

    Args:
        config: data and options.

    Returns:
        Kind of the items, steps, seconds, validation scores, the data they were measured on, and skipped files.

    Raises:
        ValueError: an option or the input is invalid.
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
    network.notes.pop("seconds", None)  # equal trainings write equal files
    save_network(network.cpu(), config.out)
    summary = {"items": kind, "steps": result.steps, "seconds": result.seconds, "measured_on": samplers.measured_on}
    return {**summary, **result.metrics, "skipped": samplers.skipped}


def _adapt_to_start(config: TrainConfig, pretrained: ClusterNetwork) -> TrainConfig:
    """Take preset, backbone and, for an LSTM, the fixed k_max from the pretrained network."""
    k_max = pretrained.options.k_max if pretrained.options.network == "lstm" else None
    backbone = pretrained.notes.get("backbone", "")
    return replace(config, preset=preset_name(pretrained), backbone=backbone, k_max=config.k_max or k_max)


def _check_config(config: TrainConfig, run_dir: Path) -> None:
    """Raise ValueError for invalid paths or combinations of options, before any computation."""
    if config.out.is_dir():
        raise ValueError(f"{config.out}: is a folder; expected the name of a file for the network")
    check_outputs(run_dir)
    source = None if config.source == "points" else Path(config.source)
    start = None if config.start is None else find_weights(config.start)
    check_outputs(config.out.parent, [config.out.name], [source, config.labels, config.pairs, start])
    if start is not None and (config.metric != "none" or config.backbone):
        option = f"metric {config.metric!r}" if config.metric != "none" else f"backbone {config.backbone!r}"
        raise ValueError(f"{option} with a pretrained network; expected one of them, as the network has its own")
    for first, second in (("labels", "pairs"), ("steps", "minutes")):
        if getattr(config, first) is not None and getattr(config, second) is not None:
            raise ValueError(f"both {first} and {second} are given; expected one of them")
    if source is None and (config.labels or config.pairs):
        option = "labels" if config.labels else "pairs"
        raise ValueError(f"{option} with source 'points'; expected none, as generated points have labels")


def _check_backbone(config: TrainConfig, kind: ItemKind) -> None:
    if config.backbone and kind != "images":
        raise ValueError(
            f"backbone {config.backbone!r} requires images, and {config.source} contains {kind}; expected no backbone"
        )


@dataclass(frozen=True)
class _Samplers:
    """Samplers of training and validation episodes, the kind of their items, and skipped files.

    Attributes:
        measured_on: data of the validation episodes, to complete the phrase "measured on".
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
        # The networks of the appendix are trained on the sets of the appendix, without variation.
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
        raise ValueError(f"{source}: a table has no classes; expected --labels or --pairs")
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
    measured_on = "unseen classes" if held_out.any() else "the training classes (too few to hold some out)"
    return _Samplers(train, validation, items.kind, measured_on)


def _pair_samplers(items: Items, path: Path, config: TrainConfig) -> _Samplers:
    k_max = config.k_max or DEFAULT_CLUSTERS
    augmentation, no_augmentation = _item_augmentations(items)
    must, cannot = read_pairs(items, path)
    held_out = hold_out_components(must, cannot, len(items.names), VALIDATION_FRACTION, config.seed)
    # A pair with one held-out item would leak information: it is used for neither training nor validation.
    train_must, train_cannot = (links[~held_out[links].any(1)] for links in (must, cannot))
    train = ConstraintSampler(items.values, train_must, train_cannot, k_max, augmentation=augmentation)
    if held_out.any():
        must, cannot = (links[held_out[links].all(1)] for links in (must, cannot))
    validation = ConstraintSampler(items.values, must, cannot, k_max, augmentation=no_augmentation)
    measured_on = "unseen pairs" if held_out.any() else "the training pairs (too few to hold some out)"
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
