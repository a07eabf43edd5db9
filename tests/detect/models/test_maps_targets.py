from __future__ import annotations

from typing import Any

import pytest
import torch

from entourage.detect.models.maps import join_targets

VALID = {"boxes": torch.tensor([[5.0, 5, 15, 15]]), "labels": torch.tensor([2])}


def test_targets_of_all_images_are_joined() -> None:
    empty = {"boxes": torch.zeros(0), "labels": torch.zeros(0)}  # any shape is accepted without objects
    thin = {"boxes": torch.tensor([[1, 2, 1, 9], [0, 0, 3, 3]]), "labels": torch.tensor([1, 3], dtype=torch.int32)}
    boxes, labels, image = join_targets([VALID, empty, thin], 3)
    assert boxes.tolist() == [[5, 5, 15, 15], [1, 2, 1, 9], [0, 0, 3, 3]]
    assert (boxes.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert labels.tolist() == [2, 1, 3]
    assert image.tolist() == [0, 2, 2]
    assert [len(part) for part in join_targets([empty], 3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"labels": torch.tensor([1])}, r'targets\[1\] has no tensor "boxes"; expected a dict of'),
        ({"boxes": VALID["boxes"]}, r'targets\[1\] has no tensor "labels"'),
        ({**VALID, "boxes": [[5, 5, 15, 15]]}, r'targets\[1\] has no tensor "boxes"'),
        ([1], r'targets\[1\] has no tensor "boxes"'),
        ({**VALID, "boxes": torch.zeros(4)}, r"boxes of targets\[1\] have shape \(4,\); expected \(n, 4\)"),
        ({**VALID, "labels": torch.tensor([1, 2])}, r"labels of targets\[1\] have shape \(2,\); expected \(1,\)"),
        ({**VALID, "labels": torch.tensor([1.0])}, r"labels of targets\[1\] are torch\.float32; expected integers"),
        (
            {**VALID, "labels": torch.tensor([True])},
            r"labels of targets\[1\] are torch\.bool; expected integers, such as torch\.int64",
        ),
        ({**VALID, "labels": torch.tensor([4])}, r"targets\[1\] has the label 4; expected 1 to 3"),
        ({**VALID, "labels": torch.tensor([0])}, r"targets\[1\] has the label 0; expected 1 to 3"),
        ({**VALID, "boxes": torch.tensor([[15.0, 15, 5, 5]])}, r"targets\[1\] has the box \[15.0, 15.0, 5.0, 5.0\]; "),
        (
            {**VALID, "boxes": torch.tensor([[5.0, 5, torch.nan, 9]])},
            r"targets\[1\] has the box \[5.0, 5.0, nan, 9.0\]; expected finite x0, y0, x1, y1 with",
        ),
        ({**VALID, "boxes": torch.tensor([[5.0, 5, torch.inf, 9]])}, r"with x0 <= x1 and y0 <= y1"),
    ],
)
def test_invalid_targets_raise_with_the_index_of_the_image(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        join_targets([VALID, target], 3)
