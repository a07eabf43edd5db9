from __future__ import annotations

import pytest
import torch

from entourage.detect.detections import Detections
from entourage.detect.detector import clef_fraction, is_upright, may_be_upside_down

CLASSES = ("staff", "gClef", "noteheadBlackOnLine")
Box = tuple[float, float, float, float]


def page(staves: list[Box], clefs: list[Box], score: float = 0.9) -> Detections:
    boxes = torch.tensor([*staves, *clefs, (300.0, 120.0, 312.0, 130.0)])
    labels = torch.tensor([1] * len(staves) + [2] * len(clefs) + [3])
    return Detections(boxes, labels, torch.full((len(boxes),), score), CLASSES)


STAVES: list[Box] = [(50.0, 100.0 * n, 850.0, 100.0 * n + 41) for n in (1, 2, 3)]
CLEFS: list[Box] = [(58.0, y0 - 15, 84.0, y1 + 13) for _, y0, _, y1 in STAVES]


def test_the_fraction_counts_staves_with_a_clef_at_their_left_end() -> None:
    assert clef_fraction(page(STAVES, CLEFS)) == 1.0
    assert clef_fraction(page(STAVES, CLEFS[1:])) == pytest.approx(2 / 3)
    assert clef_fraction(page(STAVES, [*CLEFS[:1], *CLEFS[:1]])) == pytest.approx(1 / 3)  # two clefs, one staff
    amid = [(400.0, y0, 426.0, y1) for _, y0, _, y1 in CLEFS]
    assert clef_fraction(page(STAVES, amid)) == 0.0
    between = [(58.0, y0 + 60, 84.0, y0 + 80) for _, y0, _, _ in STAVES]
    assert clef_fraction(page(STAVES, between)) == 0.0
    assert clef_fraction(page(STAVES, [])) == 0.0


def test_no_fraction_without_staves_or_without_classes_of_clefs() -> None:
    assert clef_fraction(page([], CLEFS)) is None
    assert clef_fraction(page(STAVES, CLEFS, score=0.2)) is None  # all scores are low
    other = Detections(torch.tensor(STAVES), torch.tensor([1, 1, 1]), torch.ones(3), ("staff", "stem"))
    assert clef_fraction(other) is None
    assert not may_be_upside_down(other)
    assert not is_upright(other)


def test_a_page_is_upright_and_its_rotation_upside_down() -> None:
    straight = page(STAVES, CLEFS)
    turned = straight.rotated_180(900, 500)
    assert is_upright(straight)
    assert not may_be_upside_down(straight)
    assert may_be_upside_down(turned)
    assert not is_upright(turned)
