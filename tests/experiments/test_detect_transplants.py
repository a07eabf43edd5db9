"""Dots that are moved into other surroundings."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.detect_transplants import MISSED, OTHER, collect_patches, measure, outcomes, transplant
from PIL import Image

from entourage.detect.detections import Detections
from entourage.detect.evaluation.ground_truth import GroundTruthPage

LABELS = ["augmentationDot", "noteheadBlack", "articStaccatoAbove", "repeatDot"]
BOXES = np.array([[10, 10, 14, 14], [30, 8, 42, 18], [60, 20, 66, 26], [80, 40, 85, 45]], dtype=np.float32)


@pytest.fixture
def page() -> GroundTruthPage:
    """A page on which each symbol is a filled square of its own gray value."""
    image = np.full((60, 100), 255, dtype=np.uint8)
    for number, (x0, y0, x1, y1) in enumerate(BOXES.astype(int)):
        image[y0:y1, x0:x1] = 10 * number
    stream = BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return GroundTruthPage("page", Path("page.png"), 20.0, list(LABELS), [""] * 4, [""] * 4, BOXES, stream.getvalue())


def detected(labels: list[str], boxes: np.ndarray) -> Detections:
    classes = tuple(sorted(set(labels)))
    codes = torch.tensor([classes.index(label) + 1 for label in labels])
    return Detections(torch.from_numpy(boxes), codes, torch.ones(len(labels)), classes)


def test_patches_are_the_pixels_of_the_dots(page: GroundTruthPage) -> None:
    patches = collect_patches([page, page])
    assert {kind: [patch.min() for patch in found] for kind, found in patches.items()} == {
        "augmentation": [0, 0],
        "staccato": [20, 20],
        "repeat": [30, 30],
    }
    assert patches["staccato"][0].shape == (8, 8)  # six pixels and the margin


def test_all_dots_get_the_pixels_of_the_patches_and_nothing_else_changes(page: GroundTruthPage) -> None:
    (patch,) = collect_patches([page])["repeat"]
    image, before = transplant(page, [patch]), page.image()
    for row in (0, 2, 3):
        x, y = ((BOXES[row, :2] + BOXES[row, 2:]) / 2).astype(int)
        assert image[y, x] == 30
    assert np.array_equal(image[:, 28:45], before[:, 28:45])  # the notehead
    assert (image == 30).sum() == 3 * 25
    assert not (image == 20).any()


def test_outcome_is_the_class_at_the_position_of_a_dot(page: GroundTruthPage) -> None:
    moved = BOXES[[0, 0, 2]] + np.float32(3)  # within half an interline, which is 10 pixels
    found = detected(["noteheadBlack", "repeatDot", "noteheadBlack"], moved)
    assert outcomes(page, found) == [("augmentation", "repeat"), ("staccato", OTHER), ("repeat", MISSED)]


def test_measure_adds_up_all_pages(page: GroundTruthPage) -> None:
    class Stub:
        def detect(self, image: np.ndarray) -> Detections:
            assert image.shape == (60, 100)
            return detected(LABELS, BOXES)

    counts = measure(Stub(), [page, page], collect_patches([page])["staccato"])  # type: ignore[arg-type]
    assert counts["augmentation"]["augmentation"] == counts["staccato"]["staccato"] == counts["repeat"]["repeat"] == 2
    assert sum(sum(kind.values()) for kind in counts.values()) == 6
