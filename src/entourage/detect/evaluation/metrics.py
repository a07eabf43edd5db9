"""COCO's average precision, class by class, without a cap on how much a page may hold.

The usual 100 detections an image would hide nine tenths of a full page, so the cap is put above the fullest one.

Which look-alikes are taken for each other: the same dot prolongs a note, shortens it or repeats a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections

OVERLAPS = (0.25, *(round(0.5 + 0.05 * step, 2) for step in range(10)))  # AP25, then COCO's .5 to .95
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DetectionScores:
    """Average precision of the classes that the truth holds, in the order of the class list.

    Attributes:
        classes: their names.
        counts: how many objects the truth holds of each, shape (k,).
        precision: average precision at each of `OVERLAPS`, shape (len(OVERLAPS), k).
    """

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    precision: Floats

    @property
    def ap(self) -> Floats:
        """AP[.5:.95] of each class, shape (k,)."""
        return np.asarray(self.precision[1:].mean(axis=0))

    @property
    def ap50(self) -> Floats:
        """AP at an overlap of one half, shape (k,)."""
        return np.asarray(self.precision[1])

    @property
    def ap25(self) -> Floats:
        """AP at an overlap of one quarter, shape (k,)."""
        return np.asarray(self.precision[0])

    def means(self) -> dict[str, float]:
        """Means over classes, and over objects ("by instance"); nan if the truth holds nothing."""
        figures = {"mAP": self.ap, "AP50": self.ap50, "AP25": self.ap25}
        if not self.classes:
            return {name + kind: float("nan") for kind in ("", " by instance") for name in figures}
        means = {name: float(values.mean()) for name, values in figures.items()}
        for name, values in figures.items():
            means[f"{name} by instance"] = float((values * self.counts).sum() / self.counts.sum())
        return means

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """A header, then a row a class: name, objects, AP[.5:.95], AP50, AP25 in per cent."""
        rows = [("class", "objects", "AP", "AP50", "AP25")]
        values = zip(self.classes, self.counts, self.ap, self.ap50, self.ap25, strict=True)
        rows += [(name, str(n), *(f"{100 * v:.1f}" for v in three)) for name, n, *three in values]  # type: ignore[misc]
        return rows


def average_precision(truth: Sequence[Detections], found: Sequence[Detections]) -> DetectionScores:
    """Average precision over pages, by faster-coco-eval.

    Args:
        truth: what each page holds; its scores are not looked at.
        found: what was found on each, with the same class list.

    Returns:
        The scores of classes that are in the truth. What is found of other classes costs nothing, as in COCO.

    Raises:
        ValueError: the numbers of pages differ, there is no page, or the class lists differ.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    classes = _common_classes(truth, found)
    images = [{"id": number} for number in range(1, len(truth) + 1)]
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    known = COCO({"images": images, "categories": categories, "annotations": _rows(truth, scored=False)})
    counts = np.bincount(np.concatenate([page.labels.numpy() for page in truth]), minlength=len(classes) + 1)[1:]
    present = np.flatnonzero(counts)
    if present.size == 0:
        return DetectionScores((), np.zeros(0, dtype=np.int64), np.zeros((len(OVERLAPS), 0)))
    evaluator = COCOeval_faster(known, known.loadRes(_rows(found, scored=True)), "bbox", print_function=lambda *_: None)
    evaluator.params.catIds = [int(number) + 1 for number in present]
    evaluator.params.iouThrs = np.array(OVERLAPS)
    evaluator.params.areaRng, evaluator.params.areaRngLbl = [[0.0, 1e10]], ["all"]
    evaluator.params.maxDets = [1 + max(len(page) for page in found)]
    evaluator.evaluate()
    evaluator.accumulate()
    precision = np.asarray(evaluator.eval["precision"])[:, :, :, 0, 0].mean(axis=1)  # (overlaps, recalls, k) -> (., k)
    return DetectionScores(tuple(classes[i] for i in present), counts[present].astype(np.int64), precision)


def drop_duplicates(page: Detections) -> Detections:
    """Objects of the same class in the same box are one: a unison shows one notehead, however many play it."""
    keys = np.column_stack([page.labels.numpy(), np.round(page.boxes.numpy() * 4)])  # to a quarter of a pixel
    first = np.zeros(len(page), dtype=bool)
    first[np.unique(keys, axis=0, return_index=True)[1]] = True
    return page.select(torch.from_numpy(first))


def _common_classes(truth: Sequence[Detections], found: Sequence[Detections]) -> tuple[str, ...]:
    if len(truth) != len(found) or not truth:
        raise ValueError(f"{len(found)} pages of detections for {len(truth)} of truth; expected as many, one at least")
    classes = truth[0].classes
    for page, other in enumerate([*truth, *found]):
        if other.classes != classes:
            raise ValueError(
                f"page {page % len(truth)} has a list of {len(other.classes)} classes that is not the first page's "
                f"of {len(classes)}; expected one list for truth and detections"
            )
    return classes


def _rows(pages: Sequence[Detections], scored: bool) -> list[dict[str, Any]]:
    """COCO's annotations or results: boxes as x, y, width, height."""
    rows: list[dict[str, Any]] = []
    for image, page in enumerate(pages, start=1):
        boxes = page.boxes.numpy().astype(np.float64)
        sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
        placed = np.concatenate([boxes[:, :2], sizes], axis=1).tolist()
        areas = sizes.prod(axis=1).tolist()
        for box, area, label, score in zip(placed, areas, page.labels.tolist(), page.scores.tolist(), strict=True):
            row = {"id": len(rows) + 1, "image_id": image, "category_id": label, "bbox": box, "area": area}
            rows.append(row | ({"score": score} if scored else {"iscrowd": 0}))
    return rows


MISSED = "missed"
# Beginnings of names: a class is of the first family that one of them fits, in any of the lists.
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
    """How often an object of one class was found as another of its family.

    Attributes:
        family: its name.
        classes: the classes of the family that the truth holds or that were found in their place.
        counts: of class i found as class j; the last column counts those that were missed. Shape (k, k + 1).
    """

    family: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """The share of the objects that were found at all whose class is right; nan if none was found."""
        found = int(self.counts[:, :-1].sum())
        return float(np.trace(self.counts[:, :-1]) / found) if found else float("nan")

    def table(self) -> list[tuple[str, ...]]:
        """A header, then a row a true class."""
        rows: list[tuple[str, ...]] = [("is", *self.classes, MISSED)]
        rows += [(name, *(str(n) for n in row)) for name, row in zip(self.classes, self.counts, strict=True)]
        return rows


def confusions(
    truth: Sequence[Detections], found: Sequence[Detections], *, overlap: float = 0.3, threshold: float = 0.3
) -> list[Confusion]:
    """What the look-alikes of a class list were taken for.

    Every true object is paired with the detection of its family that overlaps it most; one above `overlap` is needed.

    Args:
        truth: what each page holds.
        found: what was found on each, with the same class list.
        overlap: the least intersection over union. Low, for a dot is three pixels wide.
        threshold: detections of a lower score are not counted.

    Returns:
        One for each family of which the truth holds two classes or more. Costs O(t d) a page and family.
    """
    results = []
    names = truth[0].classes if truth else ()
    for family, starts in _FAMILIES.items():
        members = np.array([name.startswith(starts) for name in names], dtype=bool)
        counts = np.zeros((len(names), len(names) + 1), dtype=np.int64)
        for known, seen in zip(truth, found, strict=True):
            _count(known, seen, members, counts, overlap, threshold)
        used = np.flatnonzero(counts.sum(axis=1) + counts[:, :-1].sum(axis=0))
        if int((counts.sum(axis=1) > 0).sum()) >= 2:
            table = np.concatenate([counts[np.ix_(used, used)], counts[used, -1:]], axis=1)
            results.append(Confusion(family, tuple(names[i] for i in used), table))
    return results


def missed_objects(known: Detections, seen: Detections, *, overlap: float = 0.5, threshold: float = 0.3) -> Detections:
    """The true objects of a page that were not found.

    Args:
        known: what the page holds.
        seen: what was found on it, with the same class list.
        overlap: the least intersection over union with a detection of the same class, of one that was found.
        threshold: detections of a lower score are not counted.
    """
    found = np.zeros(len(known), dtype=bool)
    right, guess = known.labels.numpy(), np.where(seen.scores.numpy() >= threshold, seen.labels.numpy(), 0)
    for label in np.intersect1d(right, guess):
        ours, theirs = right == label, guess == label
        pairs = overlaps(known.boxes[ours].double().numpy(), seen.boxes[theirs].double().numpy())
        found[ours] = pairs.max(axis=1) >= overlap
    return known.select(torch.from_numpy(~found))


def overlaps(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union of all pairs of boxes, shape (n, m)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])  # (n, m, 2)
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)  # (n, m)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (first, second)]
    return np.asarray(shared / np.maximum(areas[0][:, None] + areas[1][None, :] - shared, 1e-9))


def _count(
    known: Detections,
    seen: Detections,
    members: NDArray[np.bool_],
    counts: NDArray[np.int64],
    overlap: float,
    threshold: float,
) -> None:
    right = known.labels.numpy() - 1
    guess = seen.labels.numpy() - 1
    of_family = members[right]
    usable = members[guess] & (seen.scores.numpy() >= threshold)
    right, guess = right[of_family], guess[usable]
    missed = counts.shape[1] - 1
    if len(guess) == 0:
        np.add.at(counts, (right, np.full(len(right), missed)), 1)
        return
    shared = overlaps(known.boxes.numpy()[of_family].astype(float), seen.boxes.numpy()[usable].astype(float))
    best = shared.argmax(axis=1)
    answer = np.where(shared.max(axis=1, initial=0.0) >= overlap, guess[best], missed)
    np.add.at(counts, (right, answer), 1)
