from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from entourage.detect.detections import Detections
from entourage.detect.evaluation.metrics import OVERLAPS, average_precision, drop_duplicates

CLASSES = ("stem", "beam", "slur")


def page(rows: list[tuple[float, float, float, float, int, float]]) -> Detections:
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4].long(), table[:, 5], CLASSES)


def test_exact_detections_have_ap_1_and_other_classes_have_no_effect() -> None:
    truth = page([(0, 0, 10, 10, 1, 1), (20, 0, 30, 10, 2, 1)])
    found = page([(0, 0, 10, 10, 1, 0.9), (20, 0, 30, 10, 2, 0.8), (50, 50, 60, 60, 3, 0.99)])
    scores = average_precision([truth], [found])
    assert scores.classes == ("stem", "beam")
    np.testing.assert_array_equal(scores.counts, [1, 1])
    np.testing.assert_allclose(scores.precision, 1.0)


def test_precision_at_each_threshold_depends_on_the_iou() -> None:
    # The IoU of a box of 10 x 10 and one of 10 x 6.2 inside it is .62, which exceeds .25, .5, .55 and .6.
    scores = average_precision([page([(0, 0, 10, 10, 1, 1)])], [page([(0, 0, 10, 6.2, 1, 0.5)])])
    np.testing.assert_allclose(scores.precision[:, 0], [1.0 if overlap <= 0.62 else 0.0 for overlap in OVERLAPS])
    assert scores.ap[0] == pytest.approx(0.3)
    assert scores.ap50[0] == 1.0
    assert scores.ap25[0] == 1.0


def test_an_iou_between_a_quarter_and_a_half_counts_for_ap25_only() -> None:
    scores = average_precision([page([(0, 0, 10, 10, 1, 1)])], [page([(0, 0, 10, 2.7, 1, 0.5)])])
    assert (scores.ap25[0], scores.ap50[0]) == (1.0, 0.0)


def test_a_wrong_detection_with_the_highest_score_halves_precision() -> None:
    truth = page([(0, 0, 10, 10, 1, 1)])
    false_first = page([(50, 50, 60, 60, 1, 0.9), (0, 0, 10, 10, 1, 0.5)])
    false_last = page([(50, 50, 60, 60, 1, 0.4), (0, 0, 10, 10, 1, 0.5)])
    assert average_precision([truth], [false_first]).ap50[0] == pytest.approx(0.5)
    assert average_precision([truth], [false_last]).ap50[0] == pytest.approx(1.0)


def test_more_than_a_hundred_objects_per_page_are_evaluated() -> None:
    rows = [(float(20 * i), 0.0, 20.0 * i + 10, 10.0, 1, 0.5 + i / 10_000) for i in range(1500)]
    assert average_precision([page(rows)], [page(rows)]).ap[0] == pytest.approx(1.0)


def test_means_over_classes_and_by_instance() -> None:
    truth = page([(0, 0, 10, 10, 1, 1), (20, 0, 30, 10, 1, 1), (40, 0, 50, 10, 1, 1), (0, 50, 10, 60, 2, 1)])
    scores = average_precision([truth], [truth.select(truth.labels == 1)])  # all stems, no beam
    means = scores.means()
    assert means["mAP"] == pytest.approx(0.5)
    assert means["mAP by instance"] == pytest.approx(0.75)
    assert scores.table()[1] == ("stem", "3", "100.0", "100.0", "100.0")


def test_map_is_zero_without_detections_and_nan_without_ground_truth() -> None:
    truth = page([(0, 0, 10, 10, 1, 1)])
    assert average_precision([truth], [page([])]).means()["mAP"] == 0.0
    empty = average_precision([page([])], [truth])
    assert empty.classes == ()
    assert math.isnan(empty.means()["AP50 by instance"])


def test_detections_are_compared_with_the_ground_truth_of_their_page() -> None:
    first, second = page([(0, 0, 10, 10, 1, 1)]), page([(90, 90, 99, 99, 1, 1)])
    assert average_precision([first, second], [second, first]).ap50[0] == 0.0


def test_drop_duplicates_compares_class_and_box() -> None:
    rows = [(0, 0, 10, 10, 1, 1), (0, 0, 10, 10, 1, 0.5), (0, 0, 10, 10, 2, 1), (1, 0, 10, 10, 1, 1)]
    kept = drop_duplicates(page(rows))
    assert kept.labels.tolist() == [1, 2, 1]
    assert kept.boxes[:, 0].tolist() == [0, 0, 1]
    assert len(drop_duplicates(page([]))) == 0


def test_different_numbers_of_pages_or_classes_raise() -> None:
    one = page([])
    with pytest.raises(ValueError, match="ground_truth has 2 pages, detections 1; expected equal numbers"):
        average_precision([one, one], [one])
    other = Detections(one.boxes, one.labels, one.scores, ("stem",))
    with pytest.raises(ValueError, match=r"page 0 has 1 classes .*; expected the same list"):
        average_precision([one], [other])
