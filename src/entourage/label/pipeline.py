"""The whole way of the verb: read, represent, relate, decide, show."""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from entourage import __version__
from entourage.data.labels import read_labels, read_prior
from entourage.data.media import list_images
from entourage.data.pixels import decode_pixels
from entourage.io.files import atomic_path, check_outputs, read_json_object, write_json
from entourage.io.progress import is_main_process, status
from entourage.label.active_learning import Suggestion, disputed, suggest
from entourage.label.data import Items, Metric, represent
from entourage.label.report import classifier_section, labelling_sections
from entourage.label.semi_supervised.augmenter import LabelAugmenter
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.transduction import GraphTransduction, TransductionOptions
from entourage.report.page import write_page

COMMAND = "label"
_MANY, _TOO_MANY = 0.5, 3.0  # share of all items, and how many times its share of the labels, a class is doubted at
OUTPUTS = ("labels.csv", "report.html", "summary.json", "classifier.safetensors")


@dataclass(frozen=True)
class LabelJob:
    """What is to be labelled and how.

    Attributes:
        source: a folder of images or a feature file.
        labels: a CSV file with the columns item and label.
        out: the folder to write to.
        prior: a CSV file with the column item and one column a class, or None.
        options: how the game is played.
        balance: classes are as frequent as among the given labels.
        train: how a classifier is trained, or None to label only.
        backbone: the network that looks at images.
        metric: see `represent`.
        suggestions: how many items to suggest for labelling.
        device: where to compute.
        cache: keep the features of images for the next time.
        progress: show bars; None: only on a terminal.
    """

    source: Path
    labels: Path
    out: Path
    prior: Path | None = None
    options: TransductionOptions = field(default_factory=TransductionOptions)
    balance: bool = False
    train: AugmentOptions | None = None
    backbone: str = "efficientnet-lite1"
    metric: Metric = "auto"
    suggestions: int = 12
    device: str = "auto"
    cache: bool = True
    progress: bool | None = None


def label_source(job: LabelJob) -> dict[str, Any]:
    """Labels every item of the source and writes `labels.csv`, `report.html` and `summary.json` into the out folder.

    With `train` it also writes `classifier.safetensors`, and the labels are those over the graph of the trained
    network's features. Each file is written whole or not at all, and none is written unless the labelling succeeded;
    only the checkpoints of a training are written before, in `training`, from which a stopped run continues. Of several
    processes the main one writes.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    check_outputs(job.out, OUTPUTS, [job.source, job.labels, job.prior], command=COMMAND)
    if job.source.is_dir():  # a slip in a small file should not come to light after a look at all images
        read_labels(job.labels, [path.relative_to(job.source).as_posix() for path in list_images(job.source)])
    seconds: dict[str, float] = {}
    with _timed(seconds, "represent"):
        items = represent(
            job.source,
            backbone=job.backbone,
            metric=job.metric,
            device=job.device,
            cache=job.cache,
            progress=job.progress,
        )
    trained: LabelAugmenter | None = None
    if job.train is not None:
        with _timed(seconds, "train"):
            trained, model = _train(job, _training(job, job.train), items)
    else:
        with _timed(seconds, "decide"), status(f"Labelling {len(items.names)} items", job.progress):
            model = _decide(job, items)
    with _timed(seconds, "show"), status("Writing the report", job.progress):
        suggestions = suggest(model, job.suggestions)
        sections = labelling_sections(items, model, suggestions)
    summary = _summary(job, items, model, suggestions, seconds)
    _warn_of_one_class(model)
    classifier = job.out / "classifier.safetensors"
    if trained is not None:
        summary["classifier"] = _classifier_summary(trained)
        sections.insert(1, classifier_section(trained.rounds_, classifier))
    if not is_main_process():
        return summary
    if trained is not None:
        trained.classifier_.save(classifier)
    elif classifier.exists():
        anew = "--train with another --out makes one of these"  # what is begun in `training` has other labels
        warnings.warn(f"{classifier} is of an earlier training, not of these labels; {anew}", stacklevel=2)
    _write_labels(job.out / "labels.csv", items, model)
    write_page(job.out / "report.html", f"Labels for {job.source.name}", _subtitle(summary), sections)
    write_json(job.out / "summary.json", summary)
    return summary


def check_no_labels(path: Path) -> None:
    """Refuse to write a file over the results of a labelling.

    Raises:
        ValueError: there it would be.
    """
    if (
        path.name in OUTPUTS
        and path.exists()
        and read_json_object(path.parent / "summary.json").get("made_by") == COMMAND
    ):
        raise ValueError(f"{path}: is what `entourage {COMMAND}` made; expected another file to write")


def _training(job: LabelJob, options: AugmentOptions) -> AugmentOptions:
    """The options of the training, with what the job says of every game."""
    metric = options.metric if job.metric == "auto" else job.metric
    return replace(options, metric=metric, balance=options.balance or job.balance)


def _train(job: LabelJob, options: AugmentOptions, items: Items) -> tuple[LabelAugmenter, GraphTransduction]:
    """A classifier, and the game over the graph of its features, whose labels are those of the last round."""
    if items.images is None:
        raise ValueError(
            f"{job.source}: a classifier is trained on images, not on features; expected a folder of images"
        )
    y, classes = _known_labels(job, items)
    if len(set(y) - {""}) < 2:
        raise ValueError(f"{job.labels}: a single class is labelled; expected two or more for a classifier")
    prior = _known_prior(job, items, classes)
    if prior is not None:  # a class whose images all turned out to be broken has no column in the training
        prior = prior[:, [name in set(y) for name in classes]]
    run, game = job.out / "training", GraphTransduction(**asdict(job.options))
    augmenter = LabelAugmenter(game, job.backbone, options, device=job.device, run=run, progress=job.progress)
    decode = partial(_decode, items.images, options.size, run / "pixels.npy", job.progress)
    fitted = augmenter.fit(decode, y, prior).labeller_
    if not isinstance(fitted, GraphTransduction):
        raise TypeError(f"the labels are from {type(fitted).__name__}; expected the game that was handed over")
    return augmenter, fitted


def _decode(images: list[Path], side: int, file: Path, progress: bool | None) -> NDArray[np.uint8]:
    """The pixels of all images, shape (n, side, side, 3), kept in the file."""
    pixels = decode_pixels(images, (side, side), crop=1.0, progress=progress, cache_file=file)
    if pixels.failures:
        name, reason = pixels.failures[0]
        raise ValueError(f"{name}: has become unreadable ({reason}); expected it unchanged")
    return pixels.values


def _known_labels(job: LabelJob, items: Items) -> tuple[NDArray[np.object_], list[str]]:
    """The label of each item, "" where it is unknown, and the classes; with a prior, all of the labels file."""
    # A label for an image that turned out to be broken is no mistake in the labels file.
    known = read_labels(job.labels, [*items.names, *(name for name, _ in items.skipped)])
    y = np.array([known.get(name, "") for name in items.names], dtype=object)
    if not any(y):
        raise ValueError(f"{job.labels}: all labelled items were skipped as unreadable; expected one that can be read")
    present = set(y) - {""}
    lost = sorted(set(known.values()) - present)
    if lost:
        names = ", ".join(map(repr, lost))
        warnings.warn(f"{job.labels}: no image that can be read is labelled {names}: left out", stacklevel=2)
    return y, sorted(present if job.prior is None else {*present, *lost})  # a prior has a column for each


def _known_prior(job: LabelJob, items: Items, classes: list[str]) -> NDArray[np.float64] | None:
    return None if job.prior is None else read_prior(job.prior, items.names, classes)


def _decide(job: LabelJob, items: Items) -> GraphTransduction:
    y, classes = _known_labels(job, items)
    prior = _known_prior(job, items, classes)
    class_priors: Literal["empirical"] | None = "empirical" if job.balance else None
    model = GraphTransduction(**asdict(job.options), class_priors=class_priors, classes=classes, device=job.device)
    return model.fit(items.features, y, prior)


def _warn_of_one_class(model: GraphTransduction) -> None:
    """Say so where one class has taken nearly everything, which a graph that fits the data badly lets happen."""
    names, given = np.unique(model.transduction_[model.given_], return_counts=True)
    if len(names) == 1:
        warnings.warn(
            f"a single class is labelled, so that all items that it reaches are {str(names[0])!r}", stacklevel=3
        )
        return
    taken = np.array([np.mean(model.transduction_ == name) for name in names])
    most = int(taken.argmax())
    if taken[most] > _MANY and taken[most] > _TOO_MANY * given[most] / given.sum():
        share = given[most] / given.sum()
        told = f"{taken[most]:.0%} of the items are {str(names[most])!r}, and {share:.0%} of the labels"
        warnings.warn(f"{told}: if that cannot be, try other neighbours, or --balance", stacklevel=3)


def _write_labels(path: Path, items: Items, model: GraphTransduction) -> None:
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["item", "label", "confidence", "given"])
        rows = zip(items.names, model.transduction_, model.confidence_, model.given_, strict=True)
        writer.writerows([name, label, f"{sure:.4f}", str(given).lower()] for name, label, sure, given in rows)


def _summary(
    job: LabelJob, items: Items, model: GraphTransduction, suggestions: list[Suggestion], seconds: dict[str, float]
) -> dict[str, Any]:
    found = ~model.given_
    found[model.undecided_] = False
    known = set(model.transduction_[model.given_])
    counts = {str(label): int((model.transduction_ == label).sum()) for label in model.classes_ if label in known}
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "source": str(job.source),
        "backbone": job.backbone if items.images else None,
        "options": asdict(job.options),
        "balance": job.balance,
        "items": len(items.names),
        "given": int(model.given_.sum()),
        "found": int(found.sum()),
        "undecided": len(model.undecided_),
        "skipped": [{"item": name, "reason": reason} for name, reason in items.skipped],
        "classes": counts,
        "mean_confidence": float(model.confidence_[found].mean()) if found.any() else None,
        "game_rounds": model.n_iter_,
        "consistency": float(model.consistency_[-1]),
        "label_next": [{"item": items.names[s.index], "gain": s.gain, "why": s.reason} for s in suggestions],
        "disputed": [items.names[i] for i in disputed(model)],
        "seconds": {step: round(took, 3) for step, took in seconds.items()},
    }


def _classifier_summary(trained: LabelAugmenter) -> dict[str, Any]:
    options = AugmentOptions() if trained.options is None else trained.options
    rounds = [asdict(one) for one in trained.rounds_]
    told = json.loads(json.dumps(asdict(options)))  # as it will be read: JSON knows no tuples
    return {"classes": trained.classifier_.classes, "rounds": rounds, "options": told}


def _subtitle(summary: dict[str, Any]) -> str:
    return f"{summary['items']} items, {len(summary['classes'])} classes, entourage {summary['entourage']}"


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - began
