from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entourage.detect import Detections
from entourage.detect.preprocessing.page_geometry import Rotation
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.read.orientation import UprightPage, find_upright, symbols_on_input, to_input_boxes
from entourage.read.reader import ScoreReader


def upright_page(
    image: NDArray[np.uint8] | None, turned: int = 0, rotation: Rotation | None = None, size: tuple[int, int] = (60, 40)
) -> UprightPage:
    """Return a page whose prepared image has half the size of the input."""
    page = np.zeros((size[1], size[0]) if turned % 180 == 0 else size, dtype=np.uint8)
    prepared = PreparedPage(image, page, 20.0, 0.0, rotation, 0.0)
    found = Detections(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([1]), torch.tensor([0.5]), ("stem",))
    return UprightPage(prepared, found, turned, size)


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_boxes_cover_the_same_pixels_of_the_input(turned: int) -> None:
    page = np.zeros((40, 60), dtype=np.uint8)
    page[10:14, 20:30] = 1
    seen = np.rot90(page, turned // 90)
    rows, columns = np.nonzero(seen)
    box = np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], dtype=np.float64)
    image = np.zeros((seen.shape[0] // 2, seen.shape[1] // 2), dtype=np.uint8)
    mapped = to_input_boxes(box / 2, upright_page(image, turned))
    np.testing.assert_allclose(mapped, [[20, 10, 30, 14]])


def test_boxes_of_a_straightened_page_are_turned_back() -> None:
    rotation = Rotation.from_angle(8.0, (400, 600))
    centre = rotation.matrix @ np.array([300.5, 100.5, 1.0])
    box = np.array([[*(centre - 5), *(centre + 5)]]) / 2
    size = rotation.size
    page = upright_page(np.zeros((size[1] // 2, size[0] // 2), dtype=np.uint8), 0, rotation, (600, 400))
    mapped = to_input_boxes(box, page)[0]
    assert ((mapped[:2] + mapped[2:]) / 2).tolist() == pytest.approx([301, 101], abs=1.5)


def test_boxes_stay_on_the_page() -> None:
    mapped = to_input_boxes(np.array([[-5.0, -5.0, 99.0, 99.0]]), upright_page(np.zeros((20, 30), dtype=np.uint8)))
    assert mapped.tolist() == [[0, 0, 60, 40]]
    assert to_input_boxes(np.zeros((0, 4)), upright_page(None)).shape == (0, 4)


def test_symbols_are_mapped_in_their_order() -> None:
    found = symbols_on_input(upright_page(np.zeros((20, 30), dtype=np.uint8)))
    assert found.boxes.tolist() == [[2, 4, 6, 8]]
    assert found.names == ["stem"]


def test_a_page_without_staves_has_no_scale() -> None:
    with pytest.raises(ValueError, match=r"boxes: .*; expected one with staves"):
        to_input_boxes(np.ones((1, 4)), upright_page(None))


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_turned_pages_are_found_upright(reader: ScoreReader, melody_page: NDArray[np.uint8], quarters: int) -> None:
    page = find_upright(reader.detector, np.ascontiguousarray(np.rot90(melody_page, quarters)))
    straight = find_upright(reader.detector, melody_page)
    assert page.turned == 360 - 90 * quarters
    assert straight.turned == 0
    torch.testing.assert_close(page.symbols.boxes, straight.symbols.boxes)


class SidewaysDetector:
    """A detector that sees staves in both directions of a page, but clefs only if the first row is white."""

    classes = ("staff", "clefG")

    def prepare(self, image: NDArray[np.uint8]) -> PreparedPage:
        return PreparedPage(image, image, 10.0, 0.0, None, 0.0)

    def detect_raw(self, prepared: PreparedPage) -> tuple[Detections, bool]:
        assert prepared.image is not None
        boxes = torch.tensor([[10.0, 20.0, 90.0, 60.0], [12.0, 20.0, 30.0, 70.0]])
        found = Detections(boxes, torch.tensor([1, 2]), torch.tensor([0.9, 0.9]), self.classes)
        upright = bool((prepared.image[0] > 0).all())
        return (found if upright else found.select(torch.tensor([True, False]))), False


@pytest.mark.parametrize("quarters", [0, 3])
def test_a_page_on_its_side_that_seems_to_have_staves_is_turned(quarters: int) -> None:
    page = np.full((80, 100), 255, dtype=np.uint8)
    page[-1] = 0
    turned = np.ascontiguousarray(np.rot90(page, quarters))
    found = find_upright(SidewaysDetector(), turned)  # type: ignore[arg-type]
    assert found.turned == (360 - 90 * quarters) % 360
    assert found.symbols.names == ["staff", "clefG"]
