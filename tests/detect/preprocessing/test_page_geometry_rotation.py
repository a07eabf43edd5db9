from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.detect.synthetic import staff_page, with_squares

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.page_geometry import Rotation, estimate_skew, staff_ink


@pytest.mark.parametrize("angle", [-13.0, -4.3, 0.0, 1.2, 7.0])
def test_the_skew_is_estimated(angle: float) -> None:
    page = staff_page(height=900, width=700)
    turned = Rotation.from_angle(-angle, page.shape).apply(page)  # type: ignore[arg-type]
    assert estimate_skew(staff_ink(turned)) == pytest.approx(angle, abs=0.25)


def test_an_empty_page_has_no_skew() -> None:
    assert estimate_skew(np.zeros((100, 80), dtype=bool)) == 0.0


@pytest.mark.parametrize("shape", [(3, 5000), (5000, 1), (1, 40_000)])
def test_a_strip_too_thin_for_lines_has_no_skew(shape: tuple[int, int]) -> None:
    assert estimate_skew(np.ones(shape, dtype=bool)) == 0.0


def test_the_rotated_page_contains_the_entire_page() -> None:
    page = with_squares(
        np.full((200, 300), 255, dtype=np.uint8), [(0, 0, 12), (288, 188, 12), (0, 188, 12), (288, 0, 12)]
    )
    turned = Rotation.from_angle(30.0, (200, 300)).apply(page)
    assert turned.shape[0] > 300
    ink = (255 - turned.astype(float)).sum() / 255
    assert ink == pytest.approx(4 * 144, rel=0.03)


@pytest.mark.parametrize("angle", [10.0, -10.0])
def test_inverted_boxes_lie_on_the_objects(angle: float) -> None:
    page = with_squares(np.full((400, 300), 255, dtype=np.uint8), [(200, 60, 8)])
    rotation = Rotation.from_angle(angle, (400, 300))
    rows, columns = np.nonzero(rotation.apply(page) < 128)
    box = torch.tensor([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], dtype=torch.float32)
    found = Detections(box, torch.tensor([1]), torch.tensor([0.5]), ("square",))
    back = rotation.invert(found)
    centre = (back.boxes[0, :2] + back.boxes[0, 2:]) / 2
    torch.testing.assert_close(centre, torch.tensor([204.0, 64.0]), atol=0.7, rtol=0)
    assert back.scores.tolist() == [0.5]


def test_lines_and_ovals_keep_their_size_when_inverted() -> None:
    rotation = Rotation.from_angle(90.0, (100, 100))  # width and height are exchanged
    boxes = torch.tensor([[10.0, 20, 12, 60], [50, 50, 60, 60]])
    back = rotation.invert(Detections(boxes, torch.tensor([1, 1]), torch.ones(2), ("x",)))
    sizes = back.boxes[:, 2:] - back.boxes[:, :2]
    torch.testing.assert_close(sizes, torch.tensor([[40.0, 2], [10, 10]]), atol=1e-3, rtol=0)
    slight = Rotation.from_angle(10.0, (100, 100)).invert(
        Detections(boxes, torch.tensor([1, 1]), torch.ones(2), ("x",))
    )
    wide = slight.boxes[0, 2] - slight.boxes[0, 0]
    assert float(wide) == pytest.approx(
        float(np.hypot(2 * np.cos(np.deg2rad(10)), 40 * np.sin(np.deg2rad(10)))), abs=0.01
    )
    torch.testing.assert_close(slight.boxes[1, 2:] - slight.boxes[1, :2], torch.tensor([10.0, 10.0]), atol=1e-3, rtol=0)
