"""Pipeline of `entourage label`: read a source, label its items, write labels, report, summary and classifier."""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from entourage import __version__
from entourage.compute import resolve_device
from entourage.data.labels import read_labels, read_prior
from entourage.data.media import list_images, typical_side
from entourage.data.pixels import decode_pixels
from entourage.io.files import atomic_path, check_outputs, read_json_object, write_json
from entourage.io.progress import is_main_process, status
from entourage.label.active_learning import Suggestion, contradicted_labels, suggest_labels
from entourage.label.data import Items, Metric, combine_items, read_items
from entourage.label.ensemble.auto import AutoTransduction
from entourage.label.ensemble.stacking import coverage_table
from entourage.label.report import classifier_section, labelling_sections
from entourage.label.semi_supervised.augmenter import VIEW_CACHE, LabelAugmenter
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.student.fit import StudentResult, use_student
from entourage.label.transduction import PRESETS, GraphTransduction
from entourage.report.page import write_page

COMMAND = "label"
PIXEL_CACHE = "pixels.npy"  # decoded images, in the folder of the training
# Limits of a warning: fraction of all items that one class has, and ratio to its fraction of the given labels.
DOMINANT_FRACTION, DOMINANT_RATIO = 0.5, 3.0
OUTPUTS = ("labels.csv", "report.html", "summary.json", "classifier.safetensors")


@dataclass(frozen=True)
class LabelConfig:
    """Arguments of `label_source`.

    Attributes:
        source: a folder of images or a feature file.
        labels: a CSV file with the columns item and label.
        out: output folder.
        prior: a CSV file with the column item and one column per class, or None.
        transduction: keyword arguments of `GraphTransduction`; the others have their defaults.
        balance: use the class frequencies of the given labels as class priors.
        train: options of the classifier's training; None trains no classifier.
        backbone: network for the features of images.
        more_backbones: further networks for the features of images, which are combined.
        metric: see `read_items`.
        suggestions: maximum number of items to suggest for labelling.
        device: device of all computations.
        cache: use the feature cache of images.
        progress: show bars; None: only on a terminal.
        more_sources: further sources with features of the same items, which are combined.
        method: "auto" for `AutoTransduction`, "game" for `GraphTransduction`. None: "auto" for tables (.csv and
            .parquet), for several sources and for several backbones, otherwise "game"; also "game" if `transduction`
            differs from the default or a classifier is trained.
    """

    source: Path
    labels: Path
    out: Path
    prior: Path | None = None
    transduction: Mapping[str, Any] = field(default_factory=dict)
    balance: bool = False
    train: AugmentOptions | None = None
    backbone: str = "efficientnet-lite1"
    metric: Metric = "auto"
    suggestions: int = 12
    device: str = "auto"
    cache: bool = True
    progress: bool | None = None
    more_sources: tuple[Path, ...] = ()
    more_backbones: tuple[str, ...] = ()
    method: Literal["auto", "game"] | None = None


def label_source(config: LabelConfig) -> dict[str, Any]:
    """Label all items of a source and write `labels.csv`, `report.html` and `summary.json` to the output folder.

    With `train`, also write `classifier.safetensors`; the labels are then those over the graph of the trained network's
    features. Files are written atomically, and only after the labelling has succeeded; only the checkpoints in the
    folder `training`, from which an interrupted run is resumed, are written earlier. If several processes run, only the
    main process writes.

    Args:
        config: inputs, outputs and options.

    Returns:
        The content of `summary.json`.

    Raises:
        ValueError: an input or an option is invalid, or the output folder cannot be written.
    """
    check_outputs(
        config.out, OUTPUTS, [config.source, *config.more_sources, config.labels, config.prior], command=COMMAND
    )
    method = _method(config)
    if config.source.is_dir():  # report mistakes in the labels file before the features of all images are computed
        read_labels(config.labels, [path.relative_to(config.source).as_posix() for path in list_images(config.source)])
    seconds: dict[str, float] = {}
    with _timed(seconds, "represent"):
        items = _read_sources(config)
    trained: LabelAugmenter | None = None
    model: GraphTransduction | AutoTransduction
    if config.train is not None:
        with _timed(seconds, "train"):
            trained, model = _train(config, _training_options(config, config.train), items)
    else:
        with _timed(seconds, "decide"), status(f"Labelling {len(items.names)} items", config.progress):
            model = _transduce(config, items, method)
    summary = write_results(config, items, model, seconds, trained)
    if trained is not None:
        _remove_caches(config.out / "training")
    return summary


def _remove_caches(run_dir: Path) -> None:
    """Delete the decoded images and their views, which only a training that is resumed needs."""
    if is_main_process():
        for name in (PIXEL_CACHE, VIEW_CACHE, Path(VIEW_CACHE).with_suffix(".json").name):
            (run_dir / name).unlink(missing_ok=True)


def write_results(
    config: LabelConfig,
    items: Items,
    model: GraphTransduction | AutoTransduction,
    seconds: dict[str, float],
    trained: LabelAugmenter | None = None,
) -> dict[str, Any]:
    """Write `labels.csv`, `report.html` and `summary.json`, and the classifier if one was trained.

    Args:
        config: the output folder, and the inputs and options that the summary lists.
        items: the items.
        model: the model, fitted to the items.
        seconds: duration of each earlier step; that of the report is added.
        trained: the training of the classifier, or None.

    Returns:
        The content of `summary.json`.
    """
    with _timed(seconds, "show"), status("Writing the report", config.progress):
        suggestions = suggest_labels(model, config.suggestions)
        sections = labelling_sections(items, model, suggestions)
    summary = _summary(config, items, model, suggestions, seconds)
    for note in summary["notes"]:
        warnings.warn(note, stacklevel=2)
    _warn_about_dominant_class(model)
    classifier = config.out / "classifier.safetensors"
    if trained is not None:
        summary["classifier"] = _classifier_summary(trained)
        sections.insert(1, classifier_section(trained.rounds_, classifier, trained.student_))
    if not is_main_process():
        return summary
    if trained is not None:
        trained.classifier_.save(classifier)
    elif classifier.exists():
        hint = "use --train with another --out to train one"  # the checkpoints in `training` are of the old labels
        warnings.warn(f"{classifier} is of an earlier training with other labels; {hint}", stacklevel=2)
    _write_labels(config.out / "labels.csv", items, model)
    write_page(config.out / "report.html", f"Labels for {config.source.name}", _subtitle(summary), sections)
    write_json(config.out / "summary.json", summary)
    return summary


def check_not_label_output(path: Path) -> None:
    """Check that a path to write is not an output file of `label_source`.

    Raises:
        ValueError: the file exists and was written by `label_source`.
    """
    if (
        path.name in OUTPUTS
        and path.exists()
        and read_json_object(path.parent / "summary.json").get("made_by") == COMMAND
    ):
        raise ValueError(f"{path}: is an output of `entourage {COMMAND}`; expected another file to write")


def _training_options(config: LabelConfig, options: AugmentOptions) -> AugmentOptions:
    """Return the options of the training with `metric` and `balance` of the configuration."""
    metric = options.metric if config.metric == "auto" else config.metric
    return replace(options, metric=metric, balance=options.balance or config.balance)


def _train(config: LabelConfig, options: AugmentOptions, items: Items) -> tuple[LabelAugmenter, GraphTransduction]:
    """Train a classifier; return it with the model fitted to the graph of its features."""
    if items.images is None:
        raise ValueError(
            f"{config.source}: a classifier is trained on images, not on features; expected a folder of images"
        )
    y, classes = _known_labels(config, items)
    if len(set(y) - {""}) < 2:
        raise ValueError(f"{config.labels}: a single class is labelled; expected two or more for a classifier")
    prior = _known_prior(config, items, classes)
    if prior is not None:  # the training has no column for a class without readable images
        prior = prior[:, [name in set(y) for name in classes]]
    run_dir, game = config.out / "training", GraphTransduction(**config.transduction)
    augmenter = LabelAugmenter(
        game,
        [config.backbone, *config.more_backbones],
        options,
        device=config.device,
        run_dir=run_dir,
        progress=config.progress,
    )
    side = _decoded_side(items.images, options, config.device)
    decode = partial(_decode, items.images, side, run_dir / PIXEL_CACHE, config.progress)
    fitted = augmenter.fit(decode, y, prior).labeller_
    if not isinstance(fitted, GraphTransduction):
        raise TypeError(f"labeller_ is a {type(fitted).__name__}; expected GraphTransduction")
    return augmenter, fitted


def _decoded_side(images: list[Path], options: AugmentOptions, device: str) -> int:
    """Return the side at which images are decoded: that of the networks' input, or their own if a student needs it."""
    if not use_student(options, len(images), resolve_device(device)):
        return options.size
    return min(options.size, typical_side(images))


def _decode(images: list[Path], side: int, file: Path, progress: bool | None) -> NDArray[np.uint8]:
    """Decode all images, shape (n, side, side, 3), with a cache file."""
    pixels = decode_pixels(images, (side, side), crop=1.0, progress=progress, cache_file=file)
    if pixels.failures:
        name, reason = pixels.failures[0]
        raise ValueError(f"{name}: can no longer be read ({reason}); expected an unchanged file")
    return pixels.values


def _known_labels(config: LabelConfig, items: Items) -> tuple[NDArray[np.object_], list[str]]:
    """Return the label of each item, "" where unlabelled, and the classes.

    The classes are those of the items; with a prior, all that the labels file contains, as the prior has their columns.
    """
    # The labels file may contain images that cannot be read.
    label_of_item = read_labels(config.labels, [*items.names, *(name for name, _ in items.skipped)])
    y = np.array([label_of_item.get(name, "") for name in items.names], dtype=object)
    if not any(y):
        raise ValueError(
            f"{config.labels}: all labelled items were skipped as unreadable; expected one that can be read"
        )
    present = set(y) - {""}
    missing = sorted(set(label_of_item.values()) - present)
    if missing:
        names = ", ".join(map(repr, missing))
        warnings.warn(f"{config.labels}: no image that can be read is labelled {names}: left out", stacklevel=2)
    return y, sorted(present if config.prior is None else {*present, *missing})  # the prior has all columns


def _known_prior(config: LabelConfig, items: Items, classes: list[str]) -> NDArray[np.float64] | None:
    return None if config.prior is None else read_prior(config.prior, items.names, classes)


def _method(config: LabelConfig) -> Literal["auto", "game"]:
    """Return the method, after a check against the other options."""
    default = PRESETS["default"]
    changed = [name for name, value in config.transduction.items() if name not in default or default[name] != value]
    needs_game = f"{changed[0]} is" if changed else "a classifier's training is" if config.train is not None else None
    if config.method == "auto" and needs_game:
        raise ValueError(f"method is 'auto', but {needs_game} an option of the game; expected method 'game'")
    # Columns of tables have units and kinds of their own; features of arrays and of networks suit one graph.
    several = config.more_sources or config.more_backbones
    is_table = config.source.suffix.lower() in (".csv", ".parquet") or bool(several)
    method: Literal["auto", "game"] = config.method or ("auto" if is_table and not needs_game else "game")
    if method == "game" and config.more_sources:
        raise ValueError(f"{config.more_sources[0]}: a second source requires method 'auto'; expected one source")
    if method == "game" and config.more_backbones and config.train is None:
        raise ValueError(f"backbone {config.more_backbones[0]}: a second one requires method 'auto' or a training")
    return method


def _read_sources(config: LabelConfig) -> Items:
    sources, backbones = [config.source, *config.more_sources], [config.backbone]
    if config.train is None:  # a training computes the features of further backbones itself, at its own size
        backbones += config.more_backbones
    pairs = [(source, backbone) for source in sources for backbone in (backbones if source.is_dir() else backbones[:1])]
    items = [
        read_items(
            source,
            backbone=backbone,
            metric=config.metric,
            device=config.device,
            cache=config.cache,
            progress=config.progress,
        )
        for source, backbone in pairs
    ]
    return combine_items([source for source, _ in pairs], items)


def _transduce(
    config: LabelConfig, items: Items, method: Literal["auto", "game"]
) -> GraphTransduction | AutoTransduction:
    y, classes = _known_labels(config, items)
    prior = _known_prior(config, items, classes)
    class_priors: Literal["empirical"] | None = "empirical" if config.balance else None
    if method == "auto":
        ensemble = AutoTransduction(class_priors=class_priors, classes=classes, device=config.device)
        return ensemble.fit(items.feature_sets, y, prior)
    model = GraphTransduction(**config.transduction, class_priors=class_priors, classes=classes, device=config.device)
    return model.fit(items.features, y, prior)


def _warn_about_dominant_class(model: GraphTransduction | AutoTransduction) -> None:
    """Warn if one class has most of the items, which happens if the graph does not fit the data."""
    names, given = np.unique(model.transduction_[model.labelled_mask_], return_counts=True)
    if len(names) == 1:
        warnings.warn(
            f"only the class {str(names[0])!r} is labelled, so all items that it reaches get this label", stacklevel=3
        )
        return
    fractions = np.array([np.mean(model.transduction_ == name) for name in names])
    largest = int(fractions.argmax())
    if fractions[largest] > DOMINANT_FRACTION and fractions[largest] > DOMINANT_RATIO * given[largest] / given.sum():
        labelled = given[largest] / given.sum()
        message = f"{fractions[largest]:.0%} of the items are {str(names[largest])!r}, but {labelled:.0%} of the labels"
        warnings.warn(f"{message}: if this is wrong, try another --n-neighbors, or --balance", stacklevel=3)


def _write_labels(path: Path, items: Items, model: GraphTransduction | AutoTransduction) -> None:
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["item", "label", "confidence", "given"])
        rows = zip(items.names, model.transduction_, model.confidence_, model.labelled_mask_, strict=True)
        writer.writerows(
            [name, label, f"{confidence:.4f}", str(given).lower()] for name, label, confidence, given in rows
        )


def _summary(
    config: LabelConfig,
    items: Items,
    model: GraphTransduction | AutoTransduction,
    suggestions: list[Suggestion],
    seconds: dict[str, float],
) -> dict[str, Any]:
    inferred = ~model.labelled_mask_
    inferred[model.undecided_] = False
    observed = set(model.transduction_[model.labelled_mask_])
    counts = {str(label): int((model.transduction_ == label).sum()) for label in model.classes_ if label in observed}
    return {
        "entourage": __version__,
        "made_by": COMMAND,
        "source": str(config.source),
        "more_sources": [str(source) for source in config.more_sources],
        "method": "auto" if isinstance(model, AutoTransduction) else "game",
        "backbone": config.backbone if items.images else None,
        "more_backbones": list(config.more_backbones),
        "options": {**PRESETS["default"], **config.transduction},
        "balance": config.balance,
        "items": len(items.names),
        "given": int(model.labelled_mask_.sum()),
        "found": int(inferred.sum()),
        "undecided": len(model.undecided_),
        "skipped": [{"item": name, "reason": reason} for name, reason in items.skipped],
        "classes": counts,
        "mean_confidence": float(model.confidence_[inferred].mean()) if inferred.any() else None,
        "coverage": [asdict(row) for row in coverage_table(model.confidence_[inferred])],
        "members": [asdict(member) for member in getattr(model, "members_", [])],
        "hidden_accuracy": getattr(model, "hidden_accuracy_", None),
        "confidence_is_checked": getattr(model, "confidence_is_checked_", None),
        "notes": list(getattr(model, "notes_", [])),
        "game_rounds": model.n_iter_,
        "consistency": float(model.consistency_[-1]),
        "label_next": [{"item": items.names[s.index], "gain": s.gain, "why": s.reason} for s in suggestions],
        "disputed": [items.names[i] for i in contradicted_labels(model)],
        "seconds": {step: round(duration, 3) for step, duration in seconds.items()},
    }


def _classifier_summary(trained: LabelAugmenter) -> dict[str, Any]:
    options = AugmentOptions() if trained.options is None else trained.options
    rounds = [
        {"kept": one.accepted, "held_out": one.held_out, "confidence": one.confidence, "seconds": one.seconds}
        for one in trained.rounds_
    ]
    options_json = json.loads(json.dumps(asdict(options)))  # as JSON returns it: tuples become lists
    return {
        "classes": trained.classifier_.classes,
        "rounds": rounds,
        "student": None if trained.student_ is None else _student_summary(trained.student_),
        "options": options_json,
    }


def _student_summary(student: StudentResult) -> dict[str, Any]:
    names = ("accepted", "held_out", "agreement", "side", "steps", "seconds")
    return {name: getattr(student, name) for name in names}


def _subtitle(summary: dict[str, Any]) -> str:
    return f"{summary['items']} items, {len(summary['classes'])} classes, entourage {summary['entourage']}"


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
