from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from entourage.detect.detections import Detections
from entourage.detect.inference.box_refinement import (
    MIN_SOLIDITY,
    are_ruled,
    ink_mask,
    line_solidity,
    refine_boxes,
    refine_components,
    refine_lines,
    remove_staff_lines,
)

CLASSES = ("stem", "legerLine", "augmentationDot", "keyFlat")
STEM, LEDGER, DOT, FLAT = (1, 2, 3, 4)


def raw_page() -> np.ndarray:
    """Return a staff with lines 20 pixels apart, a stem, a ledger line with its head, a dot and an accidental."""
    page = np.full((300, 400), 255, np.uint8)
    for line in range(5):
        page[100 + 20 * line : 103 + 20 * line] = 0
    page[60:130, 200:203] = 0  # a stem
    page[70:73, 90:128] = 0  # a ledger line ...
    page[62:82, 96:122] = 0  # ... and the head on it
    page[40:48, 300:309] = 0  # a dot
    page[106:149, 350:364] = 0  # on the staff, its upper and lower edge between lines
    return page


TRUTH = {STEM: (200, 60, 203, 130), LEDGER: (90, 70, 128, 73), DOT: (300, 40, 309, 48), FLAT: (350, 106, 364, 149)}


def predicted(shift: float) -> Detections:
    """Return the objects with small errors on every side, as a network predicts them."""
    boxes = torch.tensor(list(TRUTH.values()), dtype=torch.float32)
    off = shift * torch.tensor([[0.9, -0.4, 1.0, 0.6], [-0.8, 0.7, 0.9, 0.4], [0.8, -0.6, -0.7, 0.9], [1, 1, -1, -1.0]])
    return Detections(boxes + off, torch.tensor(list(TRUTH)), torch.ones(4), CLASSES)


def test_boxes_move_to_the_ink_of_lines_isolated_symbols_and_symbols_on_a_staff() -> None:
    boxes = refine_boxes(raw_page(), predicted(1.0), 20.0).boxes
    truth = torch.tensor(list(TRUTH.values()), dtype=torch.float32)
    assert boxes[0, [0, 2]].tolist() == [200, 203]  # the sides of a stem; its ends are unchanged
    torch.testing.assert_close(boxes[0, [1, 3]], truth[0, [1, 3]] + torch.tensor([-0.4, 0.6]))
    assert boxes[1, [1, 3]].tolist() == [70, 73]
    torch.testing.assert_close(boxes[2:], truth[2:])


def test_boxes_far_from_the_ink_are_unchanged() -> None:
    far = predicted(6.0)
    torch.testing.assert_close(refine_boxes(raw_page(), far, 20.0).boxes[2:], far.boxes[2:])


def test_on_a_skewed_page_only_isolated_symbols_are_refined() -> None:
    before = predicted(1.0)
    after = refine_boxes(raw_page(), before, 20.0, angle=2.0).boxes
    torch.testing.assert_close(after[[0, 1, 3]], before.boxes[[0, 1, 3]])
    assert after[2].tolist() == list(TRUTH[DOT])


def test_leaning_stems_and_the_ledger_lines_of_their_page_are_unchanged() -> None:
    page = raw_page()
    boxes = [TRUTH[LEDGER]]
    for left in (20, 160, 240):
        cv2.line(page, (left + 2, 20), (left + 10, 90), 0, 3)  # inked columns: two or three of eleven
        boxes.append((left, 20, left + 12, 92))
    before = Detections(torch.tensor(boxes).float(), torch.tensor([LEDGER, STEM, STEM, STEM]), torch.ones(4), CLASSES)
    torch.testing.assert_close(refine_boxes(page, before, 20.0).boxes, before.boxes)
    upright = before.boxes[1:].numpy()
    assert (refine_lines(page == 0, upright, 20.0, 0.1, 0.3) != upright).any()  # there are columns of ink


def test_stems_are_ruled_if_half_of_them_are_wide_enough() -> None:
    seen = np.array([[0, 0, 10, 50], [20, 0, 30, 50], [40, 0, 50, 50]], dtype=np.float32)
    thin, wide = seen.copy(), seen.copy()
    thin[:2, 2] -= 6  # most are much thinner than predicted
    wide[0, 2] -= 6
    assert not are_ruled(seen, thin)
    assert are_ruled(seen, wide)
    assert are_ruled(seen[:0], seen[:0])


def test_a_page_whose_staff_lines_are_not_solid_is_unchanged() -> None:
    page = raw_page()
    pale = np.where(page == 0, 150, page).astype(np.uint8)
    pale[200:280, 40:300] = 0  # ink is this dark: the lines are less than half of it
    assert line_solidity(pale, ink_mask(pale, 20.0), 20.0) < MIN_SOLIDITY
    before = predicted(1.0)
    torch.testing.assert_close(refine_boxes(pale, before, 20.0).boxes, before.boxes)
    assert line_solidity(page, ink_mask(page, 20.0), 20.0) > MIN_SOLIDITY


def test_a_page_without_detections_is_unchanged() -> None:
    assert len(refine_boxes(raw_page(), Detections.empty(CLASSES), 20.0)) == 0


def test_ink_is_darker_than_half_at_any_illumination() -> None:
    truth = raw_page() == 0
    light = np.linspace(0.4, 1.0, 400)
    page = (255 * light * np.where(truth, 0.2, 1.0)).astype(np.uint8)
    assert (ink_mask(page, 20.0) == truth).mean() > 0.995  # the darkest ink of the lit side is paper on the dark one
    soft = cv2.GaussianBlur(page, (0, 0), 0.7)
    assert (ink_mask(soft, 20.0) == truth).mean() > 0.99


def test_staff_lines_are_removed_and_thick_symbols_stay() -> None:
    ink = raw_page() == 0
    rest = remove_staff_lines(ink, 20.0)
    assert not rest[100:103, 0:190].any()
    np.testing.assert_array_equal(rest[106:119, 350:364], ink[106:119, 350:364])
    assert rest[62:82, 96:122].all()


@pytest.mark.parametrize("offset", [-3, 0, 3])
def test_a_line_moves_to_the_columns_that_are_nearly_all_ink(offset: int) -> None:
    ink = raw_page() == 0
    box = np.array([[200.4 + offset, 60, 203.4 + offset, 130]], dtype=np.float32)
    refined = refine_lines(ink, box, 20.0, 0.1, 0.75)
    assert refined[0, [0, 2]].tolist() == [200, 203]
    nowhere = np.array([[240, 60, 243, 130]], dtype=np.float32)
    np.testing.assert_array_equal(refine_lines(ink, nowhere, 20.0, 0.1, 0.75), nowhere)
    assert refine_lines(ink, np.zeros((0, 4), np.float32), 20.0, 0.1, 0.75).shape == (0, 4)


def test_a_symbol_may_have_several_components_and_dirt_is_ignored() -> None:
    ink = np.zeros((100, 100), dtype=bool)
    ink[20:30, 20:40] = ink[40:45, 25:35] = True  # a fermata's bow and dot, say
    ink[60, 50] = True  # a speck
    box = np.array([[19, 21, 41, 46], [48, 58, 53, 63]], dtype=np.float32)
    refined = refine_components(ink, box, 20.0)
    assert refined[0].tolist() == [20, 20, 40, 45]
    assert refined[1].tolist() == box[1].tolist()
    np.testing.assert_array_equal(refine_components(np.zeros_like(ink), box, 20.0), box)
