"""COCO's average precision, class by class, without a cap on how much a page may hold.

The usual 100 detections an image would hide nine tenths of a full page, so the cap is put above the fullest one.
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
class Scores:
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


def score_pages(truth: Sequence[Detections], found: Sequence[Detections]) -> Scores:
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
        return Scores((), np.zeros(0, dtype=np.int64), np.zeros((len(OVERLAPS), 0)))
    judge = COCOeval_faster(known, known.loadRes(_rows(found, scored=True)), "bbox", print_function=lambda *_: None)
    judge.params.catIds = [int(number) + 1 for number in present]
    judge.params.iouThrs = np.array(OVERLAPS)
    judge.params.areaRng, judge.params.areaRngLbl = [[0.0, 1e10]], ["all"]
    judge.params.maxDets = [1 + max(len(page) for page in found)]
    judge.evaluate()
    judge.accumulate()
    precision = np.asarray(judge.eval["precision"])[:, :, :, 0, 0].mean(axis=1)  # (overlaps, recalls, k) -> (., k)
    return Scores(tuple(classes[i] for i in present), counts[present].astype(np.int64), precision)


def without_twins(page: Detections) -> Detections:
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
