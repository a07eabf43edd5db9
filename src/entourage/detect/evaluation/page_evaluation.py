"""How well a detector does on pages whose truth is known: average precision, look-alikes and speed."""

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
from entourage.detect.report import (
    DISPLAY_THRESHOLD,
    MAX_FIGURES,
    detections_section,
    draw_detections,
    draw_missed,
    page_figure,
)
from entourage.io.files import write_json
from entourage.io.progress import progress_bar
from entourage.report.page import Block, Section, pluralize, write_page
from entourage.symbols import CLASSES, class_ids

ClassList = Literal["extended", "v1", "v1-118", "muscima", "own"]  # "own": the network's own classes, as they are


class PageDetector(Protocol):
    """What can be judged: a `Detector`, or anything that looks like one."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """What is on a page."""


@dataclass(frozen=True)
class Evaluation:
    """How well a detector did.

    Attributes:
        class_list: the class list.
        pages: how many pages there were.
        objects: how many objects they hold, unisons counted once.
        scores: average precision, class by class.
        confusions: what look-alikes were taken for.
        seconds: median time of a page in seconds, from its pixels to its detections.
    """

    class_list: ClassList
    pages: int
    objects: int
    scores: DetectionScores
    confusions: tuple[Confusion, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """All figures, for machines."""
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
                one.family: {
                    "classes": list(one.classes),
                    "counts": one.counts.tolist(),
                    "right": _rounded(one.accuracy),
                }
                for one in self.confusions
            },
        }


@dataclass(frozen=True)
class TimedDetections:
    """What a detector found on some pages, to be judged by one class list or by several.

    Attributes:
        detections: one `Detections` for each page.
        classes: the detector's own.
        seconds: median time of a page from its pixels to its detections; the first, which warms up, does not count if
            there are others.
    """

    detections: tuple[Detections, ...]
    classes: tuple[str, ...]
    seconds: float


def detect_pages(
    detector: PageDetector, pages: Sequence[GroundTruthPage], *, progress: bool | None = None
) -> TimedDetections:
    """Detects on every page.

    Args:
        detector: finds objects on a page.
        pages: where.
        progress: show a bar; None: only on a terminal.

    Raises:
        ValueError: there is no page.
    """
    if not pages:
        raise ValueError("there is no page to evaluate on; expected one at least")
    found, seconds = [], []
    with progress_bar("Detecting", len(pages), progress) as advance:
        for page in pages:
            image = page.image()
            start = time.perf_counter()
            found.append(detector.detect(image))
            seconds.append(time.perf_counter() - start)
            advance(1)
    return TimedDetections(tuple(found), detector.classes, float(np.median(seconds[1:] or seconds)))


def evaluate_detections(
    predictions: TimedDetections, pages: Sequence[GroundTruthPage], class_list: ClassList = "v1"
) -> Evaluation:
    """Compares what was found with the truth.

    Args:
        predictions: of the same pages.
        pages: with their truth.
        class_list: the class list; V1's dynamics and time signatures are put together from letters and digits.

    Raises:
        ValueError: no page holds anything of the list.
    """
    truth = [drop_duplicates(ground_truth_detections(page, class_list, predictions.classes)) for page in pages]
    found = [page if class_list == "own" else to_class_list(page, class_list) for page in predictions.detections]
    objects = sum(len(page) for page in truth)
    if objects == 0:
        raise ValueError(_no_objects_message(class_list, pages, predictions.classes))
    confused = tuple(confusions(truth, found))
    return Evaluation(class_list, len(pages), objects, average_precision(truth, found), confused, predictions.seconds)


def evaluate(
    detector: PageDetector,
    pages: Sequence[GroundTruthPage],
    class_list: ClassList = "v1",
    *,
    progress: bool | None = None,
) -> Evaluation:
    """Detects on every page and compares with the truth: see `detect_pages` and `evaluate_detections`."""
    return evaluate_detections(detect_pages(detector, pages, progress=progress), pages, class_list)


def ground_truth_detections(page: GroundTruthPage, class_list: ClassList, own: tuple[str, ...] = ()) -> Detections:
    """The truth of a page under the names of a list, with scores of 1.

    Args:
        page: the page.
        class_list: the list.
        own: the network's classes, for the list "own".
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
    """Names and `<svg>` elements of the first pages, with frames around what was found and what was missed."""
    pictures = []
    for page, found in list(zip(pages, predictions.detections, strict=True))[:MAX_FIGURES]:
        listed = found if class_list == "own" else to_class_list(found, class_list)
        confident = listed.select(listed.scores >= DISPLAY_THRESHOLD)
        missed = missed_objects(ground_truth_detections(page, class_list, predictions.classes), confident)
        pictures.append((page.name, page_figure(draw_missed(draw_detections(page.image(), confident), missed))))
    return pictures


def write_evaluation(
    out: Path,
    evaluation: Evaluation,
    title: str,
    pictures: Sequence[tuple[str, str]] = (),
    about: Mapping[str, str] | None = None,
) -> None:
    """Writes `evaluation.json` and `report.html` into a folder.

    Args:
        out: the folder.
        evaluation: the figures.
        title: of the report.
        pictures: names and `<svg>` elements of pages, for the report.
        about: what was measured, by name, for both.
    """
    write_json(out / "evaluation.json", {**(about or {}), **evaluation.to_dict()}, indent=1)
    means = evaluation.scores.means()
    rows: list[tuple[str, ...]] = [("mean over", "mAP", "AP50", "AP25")]
    for kind, ending in (("classes", ""), ("objects", " by instance")):
        rows.append((kind, *(f"{100 * means[name + ending]:.1f}" for name in ("mAP", "AP50", "AP25"))))
    predictions = f"{pluralize(evaluation.pages, 'pages')}, {pluralize(evaluation.objects, 'objects')}"
    lead = f"{predictions}, {evaluation.seconds:.2f} s a page."
    sections = [
        Section("Average precision", lead, blocks=[Block(table=rows)]),
        Section("Class by class", "In per cent.", wide=[Block(table=evaluation.scores.table())]),
    ]
    if evaluation.confusions:
        blocks = [Block(f"{c.family}: {c.accuracy:.1%} right", table=c.table()) for c in evaluation.confusions]
        text = "A row is what the symbols are, a column what they were taken for."
        sections.append(Section("Look-alikes", text, wide=blocks))
    if pictures:
        note = f" From a score of {DISPLAY_THRESHOLD} on; in thick red what was missed: no detection of its class "
        note += "overlaps it by half."
        sections.append(detections_section(pictures, note))
    message = "".join(f" {name.capitalize()}: {value}." for name, value in (about or {}).items())
    write_page(out / "report.html", title, f"Classes of the list {evaluation.class_list}.{message}", sections)


def _no_objects_message(class_list: ClassList, pages: Sequence[GroundTruthPage], own: tuple[str, ...]) -> str:
    """That pages hold nothing of a list, and what may be asked for instead."""
    others = [one for one in get_args(ClassList) if any(len(ground_truth_detections(page, one, own)) for page in pages)]
    hints = [f"--class-list {one}" for one in others]
    if "muscima" in others and not any(map(_in_extended, pages)):
        hints.append("--model muscima")
    verb = "holds" if len(pages) == 1 else "hold"
    problem = f"the {pluralize(len(pages), 'pages')} {verb} nothing of the list {class_list!r}"
    return f"{problem}; expected {'annotated pages' if not hints else ' or '.join(hints)}"


def _in_extended(page: GroundTruthPage) -> bool:
    """Whether it has names of the extended list; a page of MUSCIMA++ itself has not."""
    return any(page.extended)


def _names(page: GroundTruthPage, class_list: ClassList) -> list[str]:
    if class_list == "own":
        return [name or "" for name in page.labels]
    if class_list in ("v1", "v1-118"):
        return list(page.v1)
    if class_list == "extended":
        return list(page.extended)
    if not _in_extended(page):
        return [name or "" for name in page.labels]
    return [(CLASSES[name].muscima or "") if name in CLASSES else "" for name in page.extended]


def _rounded(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
