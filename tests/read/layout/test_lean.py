"""Tests of pages whose vertical lines lean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.detect import Detections
from entourage.read.layout.ink import leaning_join
from entourage.read.layout.lean import Lean, find_lean
from entourage.read.layout.systems import StaffLines, System


def staff(y: float, left: float, right: float) -> StaffLines:
    return StaffLines(np.array([left, right]), np.array([y, y]))


def leaning(left: float, right: float) -> System:
    """Return a system of four staves whose ends move by `left` and `right` pixels per row."""
    return System([staff(y, 100 + left * y, 900 + right * y) for y in (100.0, 200.0, 300.0, 400.0)])


def test_the_lean_is_that_of_the_ends_of_staves() -> None:
    lean = find_lean([leaning(-0.05, 0.03)], 600)
    assert lean is not None
    assert (lean.left, lean.right) == (pytest.approx(-0.05), pytest.approx(0.03))
    assert lean.y == 300


def test_small_leans_and_single_staves_are_left_alone() -> None:
    assert find_lean([leaning(0.005, -0.005)], 600) is None
    assert find_lean([System([staff(100, 100, 900)]), System([staff(300, 130, 930)])], 600) is None


def test_image_and_symbols_lose_their_lean_and_boxes_regain_it() -> None:
    image = np.full((200, 300), 255, dtype=np.uint8)
    for y in range(200):
        image[y, int(100 + 0.1 * (y - 100)) - 1 : int(100 + 0.1 * (y - 100)) + 2] = 0
    lean = Lean(0.1, 0.1, 0.0, 300.0, 100.0)
    straight = lean.image(image)
    assert (straight[5:195, 99:101] < 128).all()
    assert (straight[5:195, :96] > 200).all()
    box = torch.tensor([[105.0, 180.0, 115.0, 190.0]])
    found = lean.symbols(Detections(box, torch.tensor([1]), torch.tensor([0.9]), ("stem",)))
    assert found.boxes[0].tolist() == pytest.approx([96.5, 180, 106.5, 190])
    assert lean.invert(found.boxes.double().numpy())[0] == pytest.approx(box[0].numpy(), abs=0.01)


def test_a_leaning_line_joins_staves() -> None:
    ink = np.zeros((500, 1000), dtype=np.bool_)
    above, below = staff(100, 120, 900), staff(300, 100, 880)
    for y in range(124, 276):
        x = round(120 - 20 * (y - 124) / 152)
        ink[y, x : x + 2] = True
    assert leaning_join(above, below, ink) > 0.95
    assert leaning_join(above, staff(300, 140, 880), ink) < 0.5
