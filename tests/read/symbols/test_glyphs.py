"""Detected symbols: order, threshold and overlaps."""

import numpy as np
import pytest
import torch

from entourage.detect import Detections
from entourage.read.symbols.glyphs import Glyph, distinct, iou, to_glyphs


def glyph(x: float, score: float) -> Glyph:
    return Glyph("noteheadBlack", np.array([x, 0.0, x + 10, 10]), score)


def test_glyphs_are_the_detections_above_a_score_in_descending_order() -> None:
    boxes = torch.tensor([[0.0, 0, 4, 8], [10, 0, 14, 8], [20, 2, 26, 10]])
    detections = Detections(boxes, torch.tensor([1, 2, 1]), torch.tensor([0.3, 0.1, 0.9]), ("stem", "beam"))
    glyphs = to_glyphs(detections, 0.2)
    assert [(one.name, one.score) for one in glyphs] == [("stem", pytest.approx(0.9)), ("stem", pytest.approx(0.3))]
    assert (glyphs[0].x, glyphs[0].y, glyphs[0].width, glyphs[0].height) == (23, 6, 6, 8)


def test_iou_is_the_fraction_of_the_common_area() -> None:
    box = np.array([0.0, 0, 10, 10])
    assert iou(box, box) == 1
    assert iou(box, np.array([5.0, 0, 15, 10])) == pytest.approx(1 / 3)
    assert iou(box, np.array([10.0, 0, 20, 10])) == 0
    assert iou(box, np.array([20.0, 20, 30, 30])) == 0


def test_the_first_of_overlapping_glyphs_stays() -> None:
    found = distinct([glyph(0, 0.9), glyph(2, 0.8), glyph(9, 0.7), glyph(30, 0.6)])
    assert [one.score for one in found] == [0.9, 0.7, 0.6]
