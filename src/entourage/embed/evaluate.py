"""The way of `embed eval`: how good a trained run is on a set of images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from entourage import __version__
from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.embed.data import naming, read_images
from entourage.embed.sections import Embedded, embedding_sections, measurable, measure
from entourage.embed.training.ensemble import embed_images
from entourage.embed.training.run_folder import CONFIG, load_members, read_config
from entourage.io.progress import status
from entourage.io.writing import check_outputs, write_json
from entourage.report.page import write_page

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
