"""Evaluation of detectors on annotated pages: average precision, confusions of similar classes, and speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from entourage import __version__
from entourage.detect.detections import Detections, to_class_list
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.metrics import (
    Confusion,
    DetectionScores,
    average_precision,
    confusions,
    drop_duplicates,
    missed_objects,
)
from entourage.detect.report import DISPLAY_THRESHOLD, MAX_FIGURES, boxes_figure, detections_section
from entourage.io.files import write_json
from entourage.io.progress import progress_bar
from entourage.report.page import Block, Section, pluralize, write_page
from entourage.symbols import CLASSES, EXTENDED_IDS, FULL_IDS, class_ids

ClassList = Literal["extended", "full", "v1", "v1-118", "muscima", "own"]  # "own": the classes of the detector


class PageDetector(Protocol):
    """Interface of the detectors that can be evaluated, such as `Detector`."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the detector distinguishes."""

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """Return the detections on a grayscale page, shape (h, w)."""


@dataclass(frozen=True)
class Evaluation:
    """Results of the evaluation of a detector on annotated pages.

    Attributes:
        class_list: the class list.
        pages: number of pages.
        objects: number of ground truth objects; duplicates, such as the noteheads of a unison, are one object.
        scores: average precision by class.
        confusions: confusions of similar classes.
        seconds: median time in seconds from the pixels of a page to its detections.
    """

    class_list: ClassList
    pages: int
    objects: int
    scores: DetectionScores
    confusions: tuple[Confusion, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the results as values for `evaluation.json`."""
        scores = self.scores
        rows = zip(scores.classes, scores.counts, scores.ap, scores.ap50, scores.ap25, strict=True)
        return {
            "entourage": __version__,
            "list": self.class_list,
            "pages": self.pages,
            "objects": self.objects,
            "seconds a page": round(self.seconds, 4),
            "means": {name: _rounded(value) for name, value in scores.means().items()},
            "classes": {
                name: {"objects": int(n), "AP": _rounded(ap), "AP50": _rounded(ap50), "AP25": _rounded(ap25)}
                for name, n, ap, ap50, ap25 in rows
            },
            "look-alikes": {
                c.family: {"classes": list(c.classes), "counts": c.counts.tolist(), "right": _rounded(c.accuracy)}
                for c in self.confusions
            },
        }


@dataclass(frozen=True)
class TimedDetections:
    """Detections on several pages, which can be evaluated with any class list, and the time they took.

    Attributes:
        detections: one `Detections` for each page.
        classes: names of the classes of the detector.
        seconds: median time from the pixels of a page to its detections, without the first page if there are others.
    """

    detections: tuple[Detections, ...]
    classes: tuple[str, ...]
    seconds: float


def detect_pages(
    detector: PageDetector, pages: Sequence[GroundTruthPage], *, progress: bool | None = None
) -> TimedDetections:
    """Detect the objects on several pages, and measure the time per page.

    Args:
        detector: the detector.
        pages: the pages.
        progress: show a bar; None: only on a terminal.

    Returns:
        Detections and the median time.

    Raises:
        ValueError: there is no page.
    """
    if not pages:
        raise ValueError("pages: is empty; expected at least one page")
    detections, seconds = [], []
    with progress_bar("Detecting", len(pages), progress) as advance:
        for page in pages:
            image = page.image()
            start = time.perf_counter()
            detections.append(detector.detect(image))
            seconds.append(time.perf_counter() - start)
            advance(1)
    return TimedDetections(tuple(detections), detector.classes, float(np.median(seconds[1:] or seconds)))


def evaluate_detections(
    predictions: TimedDetections, pages: Sequence[GroundTruthPage], class_list: ClassList = "v1"
) -> Evaluation:
    """Compare the detections on several pages with the ground truth.

    Args:
        predictions: detections on the pages, in their order.
        pages: pages with annotations.
        class_list: the class list; for "v1" and "v1-118", letters and digits are combined into dynamics and time
            signatures, as `to_class_list` does.

    Returns:
        The evaluation.

    Raises:
        ValueError: no page has an object of the class list.
    """
    truth = [drop_duplicates(ground_truth_detections(page, class_list, predictions.classes)) for page in pages]
    detections = [_to_list(page, class_list) for page in predictions.detections]
    objects = sum(len(page) for page in truth)
    if objects == 0:
        raise ValueError(_no_objects_message(class_list, pages, predictions.classes))
    scores, confused = average_precision(truth, detections), tuple(confusions(truth, detections))
    return Evaluation(class_list, len(pages), objects, scores, confused, predictions.seconds)


def evaluate(
    detector: PageDetector,
    pages: Sequence[GroundTruthPage],
    class_list: ClassList = "v1",
    *,
    progress: bool | None = None,
) -> Evaluation:
    """Detect the objects on annotated pages and compare them with the ground truth.

    Args:
        detector: the detector.
        pages: pages with annotations.
        class_list: the class list, as for `evaluate_detections`.
        progress: show a bar; None: only on a terminal.

    Returns:
        The evaluation.

    Raises:
        ValueError: there is no page, or no page has an object of the class list.
    """
    return evaluate_detections(detect_pages(detector, pages, progress=progress), pages, class_list)


def ground_truth_detections(page: GroundTruthPage, class_list: ClassList, own: tuple[str, ...] = ()) -> Detections:
    """Return the annotations of a page as detections with a score of 1, in a class list.

    Args:
        page: the page.
        class_list: the class list; symbols whose class it lacks are omitted.
        own: classes of the detector, for the list "own".

    Returns:
        The objects, in the order of the annotations.
    """
    classes = own if class_list == "own" else tuple(class_ids(class_list))
    numbers = {name: number for number, name in enumerate(classes, start=1)}
    labels = np.array([numbers.get(name, 0) for name in _names(page, class_list)], dtype=np.int64)
    kept = labels > 0
    boxes = np.asarray(page.boxes, dtype=np.float32).reshape(-1, 4)[kept]
    return Detections(torch.from_numpy(boxes), torch.from_numpy(labels[kept]), torch.ones(int(kept.sum())), classes)


def page_figures(
    predictions: TimedDetections, pages: Sequence[GroundTruthPage], class_list: ClassList
) -> list[tuple[str, str]]:
    """Return names and `<svg>` elements of the first pages, with their detections and missed objects."""
    figures = []
    for page, detections in list(zip(pages, predictions.detections, strict=True))[:MAX_FIGURES]:
        listed = _to_list(detections, class_list)
        confident = listed.select(listed.scores >= DISPLAY_THRESHOLD)
        missed = missed_objects(ground_truth_detections(page, class_list, predictions.classes), confident)
        figures.append((page.name, boxes_figure(page.image(), confident, missed)))
    return figures


def write_evaluation(
    out: Path,
    evaluation: Evaluation,
    title: str,
    figures: Sequence[tuple[str, str]] = (),
    about: Mapping[str, str] | None = None,
) -> None:
    """Write the results of an evaluation as `evaluation.json` and `report.html`.

    Args:
        out: the folder.
        evaluation: the evaluation.
        title: title of the report.
        figures: names and `<svg>` elements of pages, for the report.
        about: properties of the evaluation, such as the data set, for both files.
    """
    write_json(out / "evaluation.json", {**(about or {}), **evaluation.to_dict()}, indent=1)
    means = evaluation.scores.means()
    rows: list[tuple[str, ...]] = [("mean over", "mAP", "AP50", "AP25")]
    for kind, ending in (("classes", ""), ("objects", " by instance")):
        rows.append((kind, *(f"{100 * means[name + ending]:.1f}" for name in ("mAP", "AP50", "AP25"))))
    counts = f"{pluralize(evaluation.pages, 'pages')}, {pluralize(evaluation.objects, 'objects')}"
    lead = f"{counts}, {evaluation.seconds:.2f} s per page."
    sections = [
        Section("Average precision", lead, blocks=[Block(table=rows)]),
        Section("Classes", "Average precision in per cent.", wide=[Block(table=evaluation.scores.table())]),
    ]
    if evaluation.confusions:
        blocks = [Block(f"{c.family}: {c.accuracy:.1%} correct", table=c.table()) for c in evaluation.confusions]
        text = "Rows are the true classes of detected and missed symbols, columns the detected classes."
        sections.append(Section("Confusions of similar classes", text, wide=blocks))
    if figures:
        note = f" The minimum score is {DISPLAY_THRESHOLD}. Thick red frames are missed objects: the IoU with every "
        note += "detection of their class is less than 0.5."
        sections.append(detections_section(figures, note))
    properties = "".join(f" {name.capitalize()}: {value}." for name, value in (about or {}).items())
    write_page(out / "report.html", title, f"Class list: {evaluation.class_list}.{properties}", sections)


def _no_objects_message(class_list: ClassList, pages: Sequence[GroundTruthPage], own: tuple[str, ...]) -> str:
    """Return an error message for pages without objects of a class list, with options that would find some."""
    others = [one for one in get_args(ClassList) if any(len(ground_truth_detections(page, one, own)) for page in pages)]
    hints = [f"--class-list {one}" for one in others]
    if "muscima" in others and not any(map(_in_extended, pages)):
        hints.append("--model muscima")
    problem = f"class_list is {class_list!r}, without any object on {pluralize(len(pages), 'pages')}"
    return f"{problem}; expected {' or '.join(hints) or 'annotated pages'}"


def _in_extended(page: GroundTruthPage) -> bool:
    """Return whether a page has classes of the extended list, unlike the pages of MUSCIMA++."""
    return any(page.extended)


def _to_list(detections: Detections, class_list: ClassList) -> Detections:
    return detections if class_list == "own" else to_class_list(detections, class_list)


def _names(page: GroundTruthPage, class_list: ClassList) -> list[str]:
    """Return the name of each symbol of a page in a class list, or ""."""
    own = [name or "" for name in page.labels]
    if class_list == "own":
        return own
    if class_list in ("v1", "v1-118"):
        return list(page.v1)
    if class_list == "extended":
        return list(page.extended)
    if class_list == "full":
        only_full = FULL_IDS.keys() - EXTENDED_IDS.keys()
        return [name or (label if label in only_full else "") for name, label in zip(page.extended, own, strict=True)]
    if not _in_extended(page):
        return own
    return [(CLASSES[name].muscima or "") if name in CLASSES else "" for name in page.extended]


def _rounded(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
