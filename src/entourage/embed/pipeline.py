"""Pipelines of the commands `embed train` and `embed eval`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from entourage import __version__
from entourage.backbones.backbone import Backbone
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.data.pixels import Pixels, decode_pixels
from entourage.embed.data import SplitRows, read_images, report_skipped, sample_classes, split_rows
from entourage.embed.index.search import open_run_index, source_name
from entourage.embed.models import Rows, build_network
from entourage.embed.report import EmbeddedSet, compute_metrics, embedding_sections, is_measurable
from entourage.embed.training.fit import (
    EmbeddedImages,
    TrainedEmbedding,
    embed_ensemble,
    embed_images,
    network_preprocessing,
    train_ensemble,
)
from entourage.embed.training.random_search import TRIALS_FILE, Trial, search_recipes, trial_to_dict
from entourage.embed.training.recipes import Recipe
from entourage.embed.training.run_folder import (
    CONFIG_FILE,
    load_members,
    read_run_config,
    read_training_history,
    save_run,
)
from entourage.embed.training.task import EmbeddingData
from entourage.io.files import check_outputs, write_json
from entourage.io.progress import status
from entourage.report.page import pluralize, write_page
from entourage.training.images import ImageBank

COMMAND = "embed train"
MAX_IN_MEMORY = 2**32  # bytes of decoded images; larger sets are stored in a memory-mapped file of the run
MAX_CURVE_IMAGES = 6000  # training images that Recall@1 is computed on after each epoch


@dataclass(frozen=True)
class TrainConfig:
    """Options of `embed train`.

    Attributes:
        data: a folder of images, an image archive (.npz), or the name of a data set.
        out: folder of the run.
        recipe: options of the training.
        backbone: name of the pretrained network.
        ensemble: number of networks whose embeddings are concatenated.
        hold_out: fraction of the training classes that is held out to select the best weights, or the best trial.
        trials: number of recipes of a random search; the best one is then trained on all training classes. 0 trains
            the recipe unchanged.
        nmi: whether to compute the NMI.
        device: device to compute on.
        progress: whether to show progress bars; None: only on a terminal.
    """

    data: str
    out: Path
    recipe: Recipe = field(default_factory=Recipe)
    backbone: str = "efficientnet-lite1"
    ensemble: int = 1
    hold_out: float = 0.1
    trials: int = 0
    nmi: bool = True
    device: str = "auto"
    progress: bool | None = None


def train_run(config: TrainConfig) -> dict[str, Any]:
    """Train, and write networks, index, report and `summary.json` into the folder of the run.

    An interrupted call resumes when it is repeated.

    Args:
        config: options of the run.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: the data, an option or the folder of the run is not valid.
    """
    start = time.perf_counter()
    resolve_device(config.device)
    check_outputs(config.out, command=COMMAND)
    image_set = read_images(config.data)
    # Both checks come before the images are decoded, which may take long.
    _check_parts(config, image_set)
    backbone = load_backbone(config.backbone, config.device, frozen=False)
    pixels = _decode(config, image_set)
    images = image_set.subset(pixels.indices)
    with report_skipped(pixels.failures):
        parts = _check_parts(config, images)
    for message in _split_warnings(config, images, parts):
        warnings.warn(message, stacklevel=2)
    bank = ImageBank(pixels.values)
    trials = (
        _run_trials(config, EmbeddingData(bank, images.labels, parts.training), parts.validation)
        if config.trials
        else []
    )
    if trials:
        config, parts = replace(config, recipe=trials[0].recipe), split_rows(images, 0.0)
    data = _embedding_data(images, bank, parts)
    report_split, rows = _report_rows(images, parts)
    measured = {f"{report_split}, before the training": _measure_untrained(config, backbone, images, data, rows)}
    members = train_ensemble(
        lambda: load_backbone(config.backbone, config.device, frozen=False),
        data,
        config.recipe,
        config.ensemble,
        run_dir=config.out / "training",
        device=config.device,
        progress=config.progress,
    )
    save_run(config.out, members, config.recipe, backbone.name, int(data.codes.max()) + 1, images.name)
    all_rows = np.arange(len(images))
    embedded = EmbeddedSet(images, embed_ensemble(members, data.bank, all_rows, progress=config.progress))
    known = EmbeddedImages(embedded.embeddings, pixels.indices, pixels.failures)
    open_run_index(config.out, image_set, source_name(config.data), embedded=known, progress=config.progress)
    with status("Writing the report", config.progress):
        measured |= _measure_splits(config, embedded, parts)
        curves = read_training_history(config.out / "training" / "member-1")
        sections = embedding_sections(embedded.subset(rows), measured, curves, pixels.failures, seed=config.recipe.seed)
    summary = _summary(config, images, parts, members, measured, pixels, time.perf_counter() - start)
    summary |= {"trials": [trial_to_dict(trial) for trial in trials]} if trials else {}
    write_page(config.out / "report.html", f"Embeddings of {images.name}", _subtitle(summary), sections)
    write_json(config.out / "summary.json", summary)
    return summary


def _check_parts(config: TrainConfig, images: ImageSet) -> SplitRows:
    """Split the images; raise ValueError if no part can be evaluated, or trials are requested without validation."""
    parts = split_rows(images, config.hold_out, config.recipe.seed)
    if not any(is_measurable(images.labels[rows]) for rows in parts.by_name().values()):
        classes = len(np.unique(images.labels))
        expected = "expected a class with two or more images"
        raise ValueError(f"{images.name}: {len(images)} images of {classes} classes cannot be evaluated; {expected}")
    if config.trials and not is_measurable(images.labels[parts.validation]):
        classes = len(np.unique(images.labels[parts.training]))
        expected = "expected four classes or more, some with several images, and hold_out above 0"
        raise ValueError(f"{images.name}: no validation set for the trials in {classes} training classes; {expected}")
    return parts


def _split_warnings(config: TrainConfig, images: ImageSet, parts: SplitRows) -> Iterator[str]:
    """Yield one-line warnings about the splits: too small to hold out or to evaluate, or test classes in training."""
    training_classes = np.unique(images.labels[np.concatenate([parts.training, parts.validation])])
    if config.hold_out and not len(parts.validation):
        reason = "too few" if len(training_classes) < 4 else "of too few images"
        yield (
            f"{images.name}: {len(training_classes)} training classes are {reason} to hold any out; all are used for"
            " training, and the last weights are saved"
        )
    test_classes = np.unique(images.labels[parts.test])
    if len(test_classes) and not is_measurable(images.labels[parts.test]):
        size = f"{pluralize(len(parts.test), 'images')} of {pluralize(len(test_classes), 'classes')}"
        expected = "expected two classes or more, and two images of one of them"
        yield f"{images.name}: the test split, {size}, cannot be evaluated; {expected}"
    elif shared := len(np.intersect1d(training_classes, test_classes)):
        yield (
            f"{images.name}: the test split shares {shared} of its {pluralize(len(test_classes), 'classes')} with the"
            " training split; its metrics are not those of unseen classes"
        )


def _run_trials(config: TrainConfig, data: EmbeddingData, held_out: Rows) -> list[Trial]:
    """Run the random search and return its trials, best first."""
    folder = config.out / "training" / "trials"
    started = (config.out / "training" / "member-1").exists()
    if started and not (folder / TRIALS_FILE).exists():  # raised here rather than after the search
        raise ValueError(
            f"{config.out}: contains a run without trials; expected another folder, or no trials to resume the run"
        )
    return search_recipes(
        lambda: load_backbone(config.backbone, config.device, frozen=False),
        data,
        held_out,
        config.recipe,
        config.trials,
        run_dir=folder,
        device=config.device,
        progress=config.progress,
    )


def _decode(config: TrainConfig, images: ImageSet) -> Pixels:
    """Decode all images to one square size without cropping, which changes their aspect ratio as in the thesis."""
    side = config.recipe.decoded_side
    too_large = len(images) * side * side * 3 > MAX_IN_MEMORY
    file = config.out / "training" / "pixels.npy" if too_large else None
    return decode_pixels(images, (side, side), progress=config.progress, cache_file=file)


def _embedding_data(images: ImageSet, bank: ImageBank, parts: SplitRows) -> EmbeddingData:
    eval_sets = {name: rows for name, rows in parts.by_name().items() if name != "training"}
    eval_sets = {name: rows for name, rows in eval_sets.items() if is_measurable(images.labels[rows])}
    # The training images that are evaluated are about as many as those of the set they are compared with.
    reference = eval_sets.get("test", eval_sets.get("validation"))
    limit = MAX_CURVE_IMAGES if reference is None else min(MAX_CURVE_IMAGES, len(reference))
    sample = sample_classes(images.labels, parts.training, limit)
    if is_measurable(images.labels[sample]):
        eval_sets["training"] = sample
    return EmbeddingData(bank, images.labels, parts.training, eval_sets)


def _measure_untrained(
    config: TrainConfig, backbone: Backbone, images: ImageSet, data: EmbeddingData, rows: Rows
) -> dict[str, float]:
    """Compute the metrics of the pretrained backbone, for comparison in the report."""
    network = build_network(backbone, 1).to(resolve_device(config.device)).eval()
    untrained = TrainedEmbedding(network, network_preprocessing(backbone, config.recipe), (), None)
    return compute_metrics(
        EmbeddedSet(images.subset(rows), embed_ensemble([untrained], data.bank, rows)), nmi=config.nmi
    )


def _measure_splits(config: TrainConfig, embedded: EmbeddedSet, parts: SplitRows) -> dict[str, dict[str, float]]:
    """Compute the metrics of each part that can be evaluated, after the training."""
    return {
        name: compute_metrics(embedded.subset(rows), nmi=config.nmi)
        for name, rows in parts.by_name().items()
        if is_measurable(embedded.images.labels[rows])
    }


def _report_rows(images: ImageSet, parts: SplitRows) -> tuple[str, Rows]:
    """Return name and rows of the part that the report shows: test, otherwise validation, otherwise training."""
    candidates = [(name, rows) for name, rows in parts.by_name().items() if is_measurable(images.labels[rows])]
    return candidates[-1] if candidates else ("training", parts.training)


def _summary(
    config: TrainConfig,
    images: ImageSet,
    parts: SplitRows,
    members: Sequence[TrainedEmbedding],
    measured: dict[str, dict[str, float]],
    pixels: Pixels,
    seconds: float,
) -> dict[str, Any]:
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "data": images.name,
        "backbone": config.backbone,
        "recipe": asdict(config.recipe),
        "members": config.ensemble,
        "epochs": members[0].epochs,
        "kept": [member.epoch for member in members],
        "images": {name: len(rows) for name, rows in parts.by_name().items()},
        "classes": {name: len(np.unique(images.labels[rows])) for name, rows in parts.by_name().items()},
        "metrics": measured,
        "skipped": [{"item": name, "reason": reason} for name, reason in pixels.failures],
        "seconds": round(seconds, 1),
    }


def _subtitle(summary: dict[str, Any]) -> str:
    networks = "One network" if summary["members"] == 1 else f"An ensemble of {summary['members']} networks"
    counts = f"{summary['images']['training']} images of {summary['classes']['training']} classes"
    saved_epochs = ", ".join(str(epoch) for epoch in dict.fromkeys(summary["kept"]))
    weights = f"the weights after epoch {saved_epochs} of {summary['epochs']} were saved"
    return (
        f"{networks} on {summary['backbone']}, trained on {counts} in {summary['seconds'] / 60:.1f} minutes; {weights}."
    )


Split = Literal["auto", "all", "training", "test"]


def evaluate_run(
    run_dir: Path,
    data: str,
    out: Path,
    *,
    split: Split = "auto",
    flip: bool = False,
    nmi: bool = True,
    device: str = "auto",
    progress: bool | None = None,
) -> dict[str, Any]:
    """Evaluate a run on a set of images, and write `report.html` and `metrics.json`.

    Args:
        run_dir: folder of a trained run.
        data: a folder of images, an image archive (.npz), or the name of a data set.
        out: folder for report.html and metrics.json.
        split: images to evaluate; "auto" is the test split if there is one, otherwise all images.
        flip: whether to add the embeddings of mirrored images.
        nmi: whether to compute the NMI.
        device: device to compute on.
        progress: whether to show progress bars; None: only on a terminal.

    Returns:
        The metrics with the data they were computed on, as in `metrics.json`.

    Raises:
        ValueError: the run or the data does not exist, the data cannot be evaluated, or `out` contains other files.
    """
    check_outputs(out)
    if (out / CONFIG_FILE).exists():
        raise ValueError(f"{out}: contains a run, whose report would be overwritten; expected another folder")
    config = read_run_config(run_dir)
    images = select_split(read_images(data), split)
    check_measurable(images)
    members = load_members(run_dir, config, device)
    embedded_images = embed_images(members, images, config.recipe.decoded_side, flip=flip, progress=progress)
    images = images.subset(embedded_images.indices)
    with report_skipped(embedded_images.skipped):
        check_measurable(images)
    embedded = EmbeddedSet(images, embedded_images.embeddings)
    with status("Writing the report", progress):
        metrics = compute_metrics(embedded, nmi=nmi)
        sections = embedding_sections(embedded, {images.name: metrics}, skipped=embedded_images.skipped)
    classes = len(np.unique(images.labels))
    summary = {
        "entourage": __version__,
        "run": str(run_dir),
        "data": images.name,
        "part": split,
        "images": len(images),
        "classes": classes,
        "metrics": metrics,
        "skipped": [{"item": name, "reason": reason} for name, reason in embedded_images.skipped],
    }
    subtitle = f"{len(images)} images of {classes} classes, embedded by {run_dir}."
    write_page(out / "report.html", f"Embeddings of {images.name}", subtitle, sections)
    write_json(out / "metrics.json", summary)
    return summary


def select_split(images: ImageSet, split: Split) -> ImageSet:
    """Return the images of a split; a ValueError if the set has no such split."""
    in_test = images.split == TEST
    if split == "all" or (split == "auto" and not in_test.any()):
        return images
    selected = images.subset(images.split == TRAIN if split == "training" else in_test)
    if not len(selected):
        raise ValueError(f"{images.name}: has no {split} split; expected one, or --split all")
    return selected


def check_measurable(images: ImageSet) -> None:
    """Raise ValueError if there is a single class, or no class has two images."""
    if not is_measurable(images.labels):
        classes = len(np.unique(images.labels))
        expected = "expected two classes or more, and two images of one of them"
        raise ValueError(f"{images.name}: {len(images)} images of {classes} classes cannot be evaluated; {expected}")
