from __future__ import annotations

import math

import numpy as np
import torch

from entourage.detect.detections import Detections
from entourage.detect.evaluation.metrics import confusions, missed_objects, overlaps

CLASSES = ("augmentationDot", "articStaccatoAbove", "repeatDot", "slur", "stem")


def page(rows: list[tuple[float, int, float]]) -> Detections:
    """Return boxes of 4 x 4 pixels from rows of x, label and score."""
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 3)
    x, zeros = table[:, 0], torch.zeros(len(table))
    boxes = torch.stack([x, zeros, x + 4, zeros + 4], dim=1)
    return Detections(boxes, table[:, 1].long(), table[:, 2], CLASSES)


def test_overlaps_is_the_iou() -> None:
    first = np.array([[0.0, 0, 2, 2], [0, 0, 4, 1]])
    second = np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [9, 9, 9, 9]])
    np.testing.assert_allclose(overlaps(first, second), [[1 / 7, 1, 0], [0, 2 / 6, 0]])


def test_objects_without_an_overlapping_detection_of_their_class_are_missed() -> None:
    truth = page([(0, 1, 1), (10, 1, 1), (20, 2, 1), (30, 3, 1), (40, 5, 1), (50, 4, 1)])
    found = page([(1, 1, 0.9), (12, 1, 0.9), (20, 1, 0.9), (30, 3, 0.2), (40, 5, 0.3)])  # IoU 3/5, 1/3, 0, 1, 1
    missed = missed_objects(truth, found)
    assert missed.boxes[:, 0].tolist() == [10, 20, 30, 50]
    assert missed.names == ["augmentationDot", "articStaccatoAbove", "repeatDot", "slur"]
    assert len(missed_objects(truth, found, overlap=0.3, threshold=0.1)) == 2
    assert len(missed_objects(truth, Detections.empty(CLASSES))) == len(truth)
    assert len(missed_objects(Detections.empty(CLASSES), found)) == 0


def test_confusion_of_dots() -> None:
    truth = page([(0, 1, 1), (10, 1, 1), (20, 2, 1), (30, 3, 1), (40, 5, 1)])
    found = page(
        [(0, 1, 0.9), (10, 2, 0.9), (21, 2, 0.9), (30, 3, 0.1), (40, 1, 0.9)]
    )  # the score of the fourth is too low
    (dots,) = confusions([truth], [found])
    assert dots.family == "dots"
    assert dots.classes == ("augmentationDot", "articStaccatoAbove", "repeatDot")
    np.testing.assert_array_equal(dots.counts, [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    assert dots.accuracy == 2 / 3
    assert dots.table()[0] == ("true class", *dots.classes, "missed")
    assert dots.table()[3] == ("repeatDot", "0", "0", "0", "1")


def test_detections_of_other_families_are_not_matched() -> None:
    truth = page([(0, 1, 1), (10, 2, 1)])
    (dots,) = confusions([truth], [page([(0, 5, 1), (10, 4, 1)])])
    np.testing.assert_array_equal(dots.counts[:, -1], [1, 1])
    assert math.isnan(dots.accuracy)


def test_counts_are_summed_over_pages_and_families_of_one_class_are_omitted() -> None:
    truth = page([(0, 1, 1), (10, 2, 1)])
    (dots,) = confusions([truth, truth], [truth, truth])
    np.testing.assert_array_equal(dots.counts[:, :-1], [[2, 0], [0, 2]])
    assert confusions([page([(0, 1, 1)])], [page([(0, 2, 1)])]) == []
