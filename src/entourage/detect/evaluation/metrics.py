"""Average precision of COCO by class, and confusions of classes that look similar.

COCO evaluates at most 100 detections per image, which would exclude nine tenths of a full page; here, all detections
are evaluated. Similar classes differ by their context only: a dot can be an augmentation dot, a staccato or part of a
repeat sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.extras import extra_imports

OVERLAPS = (0.25, *(round(0.5 + 0.05 * step, 2) for step in range(10)))  # IoU thresholds of AP25, then of COCO's AP
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DetectionScores:
    """Average precision of the k classes in the ground truth, in the order of the class list.

    Attributes:
        classes: names of the classes.
        counts: number of ground truth objects of each class, shape (k,).
        precision: average precision at each of `OVERLAPS`, shape (len(OVERLAPS), k).
    """

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    precision: Floats

    @property
    def ap(self) -> Floats:
        """Average precision of each class, the mean over IoUs of 0.50 to 0.95, shape (k,)."""
        return np.asarray(self.precision[1:].mean(axis=0))

    @property
    def ap50(self) -> Floats:
        """Average precision of each class at an IoU of 0.5, shape (k,)."""
        return np.asarray(self.precision[1])

    @property
    def ap25(self) -> Floats:
        """Average precision of each class at an IoU of 0.25, shape (k,)."""
        return np.asarray(self.precision[0])

    def means(self) -> dict[str, float]:
        """Return means over classes and, with " by instance" in the name, over objects; NaN if there are no objects."""
        figures = {"mAP": self.ap, "AP50": self.ap50, "AP25": self.ap25}
        if not self.classes:
            return {name + kind: float("nan") for kind in ("", " by instance") for name in figures}
        means = {name: float(values.mean()) for name, values in figures.items()}
        for name, values in figures.items():
            means[f"{name} by instance"] = float((values * self.counts).sum() / self.counts.sum())
        return means

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """Return a header and one row per class: name, objects, and AP[.5:.95], AP50 and AP25 in per cent."""
        rows = [("class", "objects", "AP", "AP50", "AP25")]
        values = zip(self.classes, self.counts, self.ap, self.ap50, self.ap25, strict=True)
        rows += [(name, str(n), *(f"{100 * v:.1f}" for v in three)) for name, n, *three in values]  # type: ignore[misc]
        return rows


def average_precision(ground_truth: Sequence[Detections], detections: Sequence[Detections]) -> DetectionScores:
    """Compute the average precision of each class over all pages with faster-coco-eval.

    Args:
        ground_truth: objects of each page; scores are ignored.
        detections: detections on each page, with the same class list.

    Returns:
        Scores of the classes in the ground truth. Detections of other classes have no effect, as in COCO.

    Raises:
        ValueError: the numbers of pages or the class lists differ, or there is no page.
    """
    with extra_imports():
        from faster_coco_eval import COCO, COCOeval_faster

    classes = _common_classes(ground_truth, detections)
    images = [{"id": number} for number in range(1, len(ground_truth) + 1)]
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    annotations = _coco_rows(ground_truth, scored=False)
    coco = COCO({"images": images, "categories": categories, "annotations": annotations})
    counts = np.bincount(np.concatenate([page.labels.numpy() for page in ground_truth]), minlength=len(classes) + 1)[1:]
    present = np.flatnonzero(counts)
    if present.size == 0:
        return DetectionScores((), np.zeros(0, dtype=np.int64), np.zeros((len(OVERLAPS), 0)))
    results = coco.loadRes(_coco_rows(detections, scored=True))
    evaluator = COCOeval_faster(coco, results, "bbox", print_function=lambda *_: None)
    evaluator.params.catIds = [int(number) + 1 for number in present]
    evaluator.params.iouThrs = np.array(OVERLAPS)
    evaluator.params.areaRng, evaluator.params.areaRngLbl = [[0.0, 1e10]], ["all"]
    evaluator.params.maxDets = [1 + max(len(page) for page in detections)]
    evaluator.evaluate()
    evaluator.accumulate()
    precision = np.asarray(evaluator.eval["precision"])[:, :, :, 0, 0].mean(axis=1)  # (overlaps, recalls, k) -> (., k)
    return DetectionScores(tuple(classes[i] for i in present), counts[present].astype(np.int64), precision)


def drop_duplicates(page: Detections) -> Detections:
    """Remove all but the first of the objects with the same class and box, such as the noteheads of a unison."""
    keys = np.column_stack([page.labels.numpy(), np.round(page.boxes.numpy() * 4)])  # rounded to a quarter of a pixel
    first = np.zeros(len(page), dtype=bool)
    first[np.unique(keys, axis=0, return_index=True)[1]] = True
    return page.select(torch.from_numpy(first))


def _common_classes(ground_truth: Sequence[Detections], detections: Sequence[Detections]) -> tuple[str, ...]:
    """Return the class list of the pages; raise a ValueError if they have different ones."""
    if len(ground_truth) != len(detections) or not ground_truth:
        lengths = f"ground_truth has {len(ground_truth)} pages, detections {len(detections)}"
        raise ValueError(f"{lengths}; expected equal numbers of at least 1")
    classes = ground_truth[0].classes
    for index, page in enumerate([*ground_truth, *detections]):
        if page.classes != classes:
            lists = f"{len(page.classes)} classes that are not the {len(classes)} of page 0"
            raise ValueError(f"page {index % len(ground_truth)} has {lists}; expected the same list for all pages")
    return classes


def _coco_rows(pages: Sequence[Detections], scored: bool) -> list[dict[str, Any]]:
    """Return annotations or, with scores, results in COCO's format, whose boxes are x, y, width and height."""
    rows: list[dict[str, Any]] = []
    for image, page in enumerate(pages, start=1):
        boxes = page.boxes.numpy().astype(np.float64)
        sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
        bboxes = np.concatenate([boxes[:, :2], sizes], axis=1).tolist()
        areas = sizes.prod(axis=1).tolist()
        for box, area, label, score in zip(bboxes, areas, page.labels.tolist(), page.scores.tolist(), strict=True):
            row = {"id": len(rows) + 1, "image_id": image, "category_id": label, "bbox": box, "area": area}
            rows.append(row | ({"score": score} if scored else {"iscrowd": 0}))
    return rows


MISSED = "missed"
# Families of similar classes, as prefixes of class names of all lists.
_FAMILIES: dict[str, tuple[str, ...]] = {
    "dots": ("augmentationDot", "articStaccatoA", "articStaccatoB", "articulationStaccato", "repeatDot"),
    "noteheads": ("notehead",),
    "flats": ("accidentalFlat", "keyFlat"),
    "naturals": ("accidentalNatural", "keyNatural"),
    "sharps": ("accidentalSharp", "keySharp"),
    "threes": ("timeSig3", "tuplet3", "fingering3", "numeral3"),
    "clefs": ("gClef", "clefG", "fClef", "clefF", "cClef", "clefC"),
    "half and whole rests": ("restHalf", "restWhole"),
    "slurs and ties": ("slur", "tie"),
    "tenuti and dashes": ("articTenuto", "articulationTenuto", "legerLine"),
    "flags": ("flag",),
}


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of a family of classes that look similar.

    Attributes:
        family: name of the family.
        classes: the k classes of the family that occur in the ground truth or in the detections matched with it.
        counts: number of objects of class i that are detected as class j; missed objects are in the last column. Shape
            (k, k + 1).
    """

    family: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """Fraction of the detected objects whose class is correct; NaN if no object is detected."""
        detected = int(self.counts[:, :-1].sum())
        return float(np.trace(self.counts[:, :-1]) / detected) if detected else float("nan")

    def table(self) -> list[tuple[str, ...]]:
        """Return the rows of a table: a header, and one row of counts per true class."""
        rows: list[tuple[str, ...]] = [("true class", *self.classes, MISSED)]
        rows += [(name, *(str(n) for n in row)) for name, row in zip(self.classes, self.counts, strict=True)]
        return rows


def confusions(
    ground_truth: Sequence[Detections],
    detections: Sequence[Detections],
    *,
    overlap: float = 0.3,
    threshold: float = 0.3,
) -> list[Confusion]:
    """Compute a confusion matrix for each family of similar classes.

    Each ground truth object is matched with the detection of its family that has the highest IoU with it.

    Args:
        ground_truth: objects of each page.
        detections: detections on each page, with the same class list.
        overlap: minimum IoU of a match; low, because a dot is three pixels wide.
        threshold: minimum score of a detection.

    Returns:
        A confusion for each family with at least two classes in the ground truth. Costs O(t d) per page and family,
        for t objects and d detections.
    """
    results = []
    names = ground_truth[0].classes if ground_truth else ()
    for family, prefixes in _FAMILIES.items():
        members = np.array([name.startswith(prefixes) for name in names], dtype=bool)
        counts = np.zeros((len(names), len(names) + 1), dtype=np.int64)
        for page, found in zip(ground_truth, detections, strict=True):
            _count_matches(page, found, members, counts, overlap, threshold)
        used = np.flatnonzero(counts.sum(axis=1) + counts[:, :-1].sum(axis=0))
        if int((counts.sum(axis=1) > 0).sum()) >= 2:
            table = np.concatenate([counts[np.ix_(used, used)], counts[used, -1:]], axis=1)
            results.append(Confusion(family, tuple(names[i] for i in used), table))
    return results


def missed_objects(
    ground_truth: Detections, detections: Detections, *, overlap: float = 0.5, threshold: float = 0.3
) -> Detections:
    """Return the ground truth objects of a page that are not detected.

    Args:
        ground_truth: objects of the page.
        detections: detections on the page, with the same class list.
        overlap: minimum IoU of a detected object with a detection of its class.
        threshold: minimum score of a detection.

    Returns:
        The missed objects.
    """
    detected = np.zeros(len(ground_truth), dtype=bool)
    true = ground_truth.labels.numpy()
    predicted = np.where(detections.scores.numpy() >= threshold, detections.labels.numpy(), 0)
    for label in np.intersect1d(true, predicted):
        of_class, candidates = true == label, predicted == label
        pairs = overlaps(ground_truth.boxes[of_class].double().numpy(), detections.boxes[candidates].double().numpy())
        detected[of_class] = pairs.max(axis=1) >= overlap
    return ground_truth.select(torch.from_numpy(~detected))


def overlaps(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the IoU of each of n boxes with each of m boxes, (n, 4) and (m, 4): shape (n, m)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])  # (n, m, 2)
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    intersection = np.clip(high - low, 0, None).prod(axis=2)  # (n, m)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (first, second)]
    return np.asarray(intersection / np.maximum(areas[0][:, None] + areas[1][None, :] - intersection, 1e-9))


def _count_matches(
    ground_truth: Detections,
    detections: Detections,
    members: NDArray[np.bool_],
    counts: NDArray[np.int64],
    overlap: float,
    threshold: float,
) -> None:
    """Add the matches on a page to the confusions of a family, shape (classes, classes + 1); `members` is its mask."""
    true = ground_truth.labels.numpy() - 1
    predicted = detections.labels.numpy() - 1
    of_family = members[true]
    candidates = members[predicted] & (detections.scores.numpy() >= threshold)
    true, predicted = true[of_family], predicted[candidates]
    missed = counts.shape[1] - 1
    if len(predicted) == 0:
        np.add.at(counts, (true, np.full(len(true), missed)), 1)
        return
    boxes = [ground_truth.boxes.numpy()[of_family], detections.boxes.numpy()[candidates]]
    pairs = overlaps(boxes[0].astype(float), boxes[1].astype(float))
    matched = np.where(pairs.max(axis=1, initial=0.0) >= overlap, predicted[pairs.argmax(axis=1)], missed)
    np.add.at(counts, (true, matched), 1)
