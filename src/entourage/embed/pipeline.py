"""The whole way of `embed train`: read, train, represent, measure, show.

The way of `embed eval`: how good a trained run is on a set of images.
"""

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
from entourage.embed.data import Parts, naming, read_images, split_parts, whole_classes
from entourage.embed.models import Rows, build_network
from entourage.embed.report import Embedded, embedding_sections, measurable, measure
from entourage.embed.search import write_index
from entourage.embed.training.fit import (
    EmbeddedImages,
    TrainedEmbedding,
    embed_ensemble,
    embed_images,
    network_preprocessing,
    train_ensemble,
)
from entourage.embed.training.random_search import RECORD, Trial, search_recipes, told
from entourage.embed.training.recipes import Recipe
from entourage.embed.training.run_folder import CONFIG, load_members, read_config, read_course, save_run
from entourage.embed.training.task import EmbeddingData
from entourage.io.files import check_outputs, write_json
from entourage.io.progress import status
from entourage.report.page import pluralize, write_page
from entourage.training.images import ImageBank

COMMAND = "embed train"
IN_MEMORY = 2**32  # bytes of decoded images; more of them are kept in a file of the run
CURVE = 6000  # images that a curve of the training is measured on, at most


@dataclass(frozen=True)
class TrainJob:
    """What is to be trained and how.

    Attributes:
        data: a folder of images, a pack, or the name of a data set.
        out: the run's folder.
        recipe: how to train.
        backbone: the network to start from.
        members: how many networks stand side by side.
        hold_out: share of the training classes by which the best weights are chosen, or the best of several trials.
        trials: how many recipes to try, drawn around the one that is given; the best of them is then trained on all
            training classes. 0 for none: the recipe is taken as it is.
        nmi: whether to measure clusters, too.
        device: where to compute.
        progress: show bars; None: only on a terminal.
    """

    data: str
    out: Path
    recipe: Recipe = field(default_factory=Recipe)
    backbone: str = "efficientnet-lite1"
    members: int = 1
    hold_out: float = 0.1
    trials: int = 0
    nmi: bool = True
    device: str = "auto"
    progress: bool | None = None


def train_run(job: TrainJob) -> dict[str, Any]:
    """Train, and write networks, index, report and `summary.json` into the run's folder.

    A call that was stopped continues when it is made again.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    began = time.perf_counter()
    resolve_device(job.device)
    check_outputs(job.out, command=COMMAND)
    every = read_images(job.data)
    _check_parts(job, every)  # a set that cannot be trained on is refused before it is decoded
    backbone = load_backbone(job.backbone, job.device, frozen=False)  # and so is a network that is not there
    pixels = _decode(job, every)
    images = every.subset(pixels.indices)
    with naming(pixels.failures):
        parts = _check_parts(job, images)
    for doubt in _doubts(job, images, parts):
        warnings.warn(doubt, stacklevel=2)
    bank = ImageBank(pixels.values)
    tried = _search(job, EmbeddingData(bank, images.labels, parts.training), parts.validation) if job.trials else []
    if tried:
        job, parts = replace(job, recipe=tried[0].recipe), split_parts(images, 0.0)
    data = _data(images, bank, parts)
    shown, rows = _shown(images, parts)
    measured = {f"{shown}, before the training": _before(job, backbone, images, data, rows)}
    members = train_ensemble(
        lambda: load_backbone(job.backbone, job.device, frozen=False),
        data,
        job.recipe,
        job.members,
        run=job.out / "training",
        device=job.device,
        progress=job.progress,
    )
    config = save_run(job.out, members, job.recipe, backbone.name, int(data.codes.max()) + 1, images.name)
    every_row = np.arange(len(images))
    embedded = Embedded(images, embed_ensemble(members, data.bank, every_row, progress=job.progress))
    write_index(job.out, config, every, EmbeddedImages(embedded.embeddings, pixels.indices, pixels.failures))
    with status("Writing the report", job.progress):
        measured |= _after(job, embedded, parts)
        curves = read_course(job.out / "training" / "member-1")
        sections = embedding_sections(embedded.part(rows), measured, curves, pixels.failures, seed=job.recipe.seed)
    summary = _summary(job, images, parts, members, measured, pixels, time.perf_counter() - began)
    summary |= {"trials": [told(trial) for trial in tried]} if tried else {}
    write_page(job.out / "report.html", f"Embeddings of {images.name}", _subtitle(summary), sections)
    write_json(job.out / "summary.json", summary)
    return summary


def _check_parts(job: TrainJob, images: ImageSet) -> Parts:
    """Which images are for what; something must be there to be measured, and to judge trials by."""
    parts = split_parts(images, job.hold_out, job.recipe.seed)
    if not any(measurable(images.labels[rows]) for rows in parts.named().values()):
        classes = len(np.unique(images.labels))
        expected = "expected two images or more of one of them, one to find the other"
        raise ValueError(f"{images.name}: {len(images)} images of {classes} classes cannot be measured; {expected}")
    if job.trials and not measurable(images.labels[parts.validation]):
        classes = len(np.unique(images.labels[parts.training]))
        expected = "expected four classes or more, some of several images, and a share above 0 to hold out"
        raise ValueError(f"{images.name}: none of {classes} training classes can judge the trials; {expected}")
    return parts


def _doubts(job: TrainJob, images: ImageSet, parts: Parts) -> Iterator[str]:
    """What cannot be chosen by or measured as the parts of a set promise, a line each."""
    trained = np.unique(images.labels[np.concatenate([parts.training, parts.validation])])
    if job.hold_out and not len(parts.validation):
        why = "too few" if len(trained) < 4 else "of too few images"
        yield (
            f"{images.name}: {len(trained)} training classes are {why} to hold any out: all are trained on,"
            " and the last weights are kept"
        )
    tested = np.unique(images.labels[parts.test])
    if len(tested) and not measurable(images.labels[parts.test]):
        what = f"{pluralize(len(parts.test), 'images')} of {pluralize(len(tested), 'classes')}"
        expected = "expected two classes or more, and two images of one of them"
        yield f"{images.name}: the test part, {what}, cannot be measured; {expected}"
    elif known := len(np.intersect1d(trained, tested)):
        yield (
            f"{images.name}: the test part shares {known} of its {pluralize(len(tested), 'classes')} with the training"
            " part: its figures are not those of classes never seen"
        )


def _search(job: TrainJob, data: EmbeddingData, held_out: Rows) -> list[Trial]:
    """The trials of a job, best first."""
    folder = job.out / "training" / "trials"
    if (job.out / "training" / "member-1").exists() and not (folder / RECORD).exists():  # now, not after the search
        raise ValueError(
            f"{job.out} holds a run without trials; continue it as it was started, or choose another folder"
        )
    return search_recipes(
        lambda: load_backbone(job.backbone, job.device, frozen=False),
        data,
        held_out,
        job.recipe,
        job.trials,
        run=folder,
        device=job.device,
        progress=job.progress,
    )


def _decode(job: TrainJob, images: ImageSet) -> Pixels:
    """All images in one size, the whole of each: squashed, as in the thesis."""
    side = job.recipe.decoded_side
    large = len(images) * side * side * 3 > IN_MEMORY
    file = job.out / "training" / "pixels.npy" if large else None
    return decode_pixels(images, (side, side), progress=job.progress, cache_file=file)


def _data(images: ImageSet, bank: ImageBank, parts: Parts) -> EmbeddingData:
    judged = {name: rows for name, rows in parts.named().items() if name != "training"}
    judged = {name: rows for name, rows in judged.items() if measurable(images.labels[rows])}
    beside = judged.get("test", judged.get("validation"))  # the curve that the training's is to be compared with
    limit = CURVE if beside is None else min(CURVE, len(beside))
    sample = whole_classes(images.labels, parts.training, limit)
    if measurable(images.labels[sample]):
        judged["training"] = sample
    return EmbeddingData(bank, images.labels, parts.training, judged)


def _before(job: TrainJob, backbone: Backbone, images: ImageSet, data: EmbeddingData, rows: Rows) -> dict[str, float]:
    """Metrics of the backbone as it comes, so that the report can tell what the training was good for."""
    network = build_network(backbone, 1).to(resolve_device(job.device)).eval()
    untrained = TrainedEmbedding(network, network_preprocessing(backbone, job.recipe), (), None)
    return measure(Embedded(images.subset(rows), embed_ensemble([untrained], data.bank, rows)), nmi=job.nmi)


def _after(job: TrainJob, embedded: Embedded, parts: Parts) -> dict[str, dict[str, float]]:
    """Metrics of each part that can be measured, after the training."""
    return {
        name: measure(embedded.part(rows), nmi=job.nmi)
        for name, rows in parts.named().items()
        if measurable(embedded.images.labels[rows])
    }


def _shown(images: ImageSet, parts: Parts) -> tuple[str, Rows]:
    """The images that the report shows: of classes the networks have never seen, where there are any."""
    found = [(name, rows) for name, rows in parts.named().items() if measurable(images.labels[rows])]
    return found[-1] if found else ("training", parts.training)


def _summary(
    job: TrainJob,
    images: ImageSet,
    parts: Parts,
    members: Sequence[TrainedEmbedding],
    measured: dict[str, dict[str, float]],
    pixels: Pixels,
    seconds: float,
) -> dict[str, Any]:
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "data": images.name,
        "backbone": job.backbone,
        "recipe": asdict(job.recipe),
        "members": job.members,
        "epochs": members[0].epochs,
        "kept": [member.epoch for member in members],
        "images": {name: len(rows) for name, rows in parts.named().items()},
        "classes": {name: len(np.unique(images.labels[rows])) for name, rows in parts.named().items()},
        "metrics": measured,
        "skipped": [{"item": name, "reason": reason} for name, reason in pixels.failures],
        "seconds": round(seconds, 1),
    }


def _subtitle(summary: dict[str, Any]) -> str:
    networks = "One network" if summary["members"] == 1 else f"{summary['members']} networks side by side"
    counts = f"{summary['images']['training']} images of {summary['classes']['training']} classes"
    kept = ", ".join(str(epoch) for epoch in dict.fromkeys(summary["kept"]))
    weights = f"the weights after epoch {kept} of {summary['epochs']} were kept"
    return (
        f"{networks} on {summary['backbone']}, trained on {counts} in {summary['seconds'] / 60:.1f} minutes; {weights}."
    )


Part = Literal["auto", "all", "training", "test"]


@dataclass(frozen=True)
class EvalJob:
    """What is to be measured.

    Attributes:
        run: the folder of a trained run.
        data: a folder of images, a pack, or the name of a data set.
        out: a folder for report.html and metrics.json.
        part: of the data; "auto" is its test part if it has one, otherwise all.
        flip: whether mirror images add to embeddings.
        nmi: whether to measure clusters, too.
        device: where to compute.
        progress: show bars; None: only on a terminal.
    """

    run: Path
    data: str
    out: Path
    part: Part = "auto"
    flip: bool = False
    nmi: bool = True
    device: str = "auto"
    progress: bool | None = None


def evaluate_run(job: EvalJob) -> dict[str, Any]:
    """Measure, and write `report.html` and `metrics.json` into the out folder.

    Returns:
        The metrics and what they are of, as in `metrics.json`.

    Raises:
        ValueError: there is no run or no such data, nothing can be measured on it, or a file is in the way.
    """
    check_outputs(job.out)
    if (job.out / CONFIG).exists():
        raise ValueError(f"{job.out}: holds a run, whose report would be overwritten; expected another folder")
    config = read_config(job.run)
    images = choose_part(read_images(job.data), job.part)
    check_measurable(images)
    members = load_members(job.run, config, job.device)
    found = embed_images(members, images, config.recipe.decoded_side, flip=job.flip, progress=job.progress)
    images = images.subset(found.kept)
    with naming(found.skipped):
        check_measurable(images)
    embedded = Embedded(images, found.embeddings)
    with status("Writing the report", job.progress):
        metrics = measure(embedded, nmi=job.nmi)
        sections = embedding_sections(embedded, {images.name: metrics}, skipped=found.skipped)
    classes = len(np.unique(images.labels))
    summary = {
        "entourage": __version__,
        "run": str(job.run),
        "data": images.name,
        "part": job.part,
        "images": len(images),
        "classes": classes,
        "metrics": metrics,
        "skipped": [{"item": name, "reason": reason} for name, reason in found.skipped],
    }
    subtitle = f"{len(images)} images of {classes} classes, embedded by {job.run}."
    write_page(job.out / "report.html", f"Embeddings of {images.name}", subtitle, sections)
    write_json(job.out / "metrics.json", summary)
    return summary


def choose_part(images: ImageSet, part: Part) -> ImageSet:
    """The part of a set that is asked for.

    Raises:
        ValueError: the set has no such part.
    """
    tested = images.split == TEST
    if part == "all" or (part == "auto" and not tested.any()):
        return images
    chosen = images.subset(images.split == TRAIN if part == "training" else tested)
    if not len(chosen):
        raise ValueError(f"{images.name} has no {part} part; expected one, or --part all")
    return chosen


def check_measurable(images: ImageSet) -> None:
    """Refuse a set on which every answer would be right, or none.

    Raises:
        ValueError: there is a single class, or no class has two images.
    """
    if not measurable(images.labels):
        classes = len(np.unique(images.labels))
        expected = "expected two classes or more, and two images of one of them"
        raise ValueError(f"{images.name}: {len(images)} images of {classes} classes cannot be measured; {expected}")
