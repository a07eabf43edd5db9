from __future__ import annotations

from typing import Any

import pytest
import torch

from entourage.detect.models.maps import join_targets

GOOD = {"boxes": torch.tensor([[5.0, 5, 15, 15]]), "labels": torch.tensor([2])}


def test_objects_of_all_images_are_put_into_one() -> None:
    empty = {"boxes": torch.zeros(0), "labels": torch.zeros(0)}  # of no form, as of no object
    line = {"boxes": torch.tensor([[1, 2, 1, 9], [0, 0, 3, 3]]), "labels": torch.tensor([1, 3], dtype=torch.int32)}
    boxes, labels, image = join_targets([GOOD, empty, line], 3)
    assert boxes.tolist() == [[5, 5, 15, 15], [1, 2, 1, 9], [0, 0, 3, 3]]
    assert (boxes.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert labels.tolist() == [2, 1, 3]
    assert image.tolist() == [0, 2, 2]
    assert [len(part) for part in join_targets([empty], 3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"labels": torch.tensor([1])}, 'target of image 1 has no tensor "boxes"; expected a dict of'),
        ({"boxes": GOOD["boxes"]}, 'target of image 1 has no tensor "labels"'),
        ({**GOOD, "boxes": [[5, 5, 15, 15]]}, 'target of image 1 has no tensor "boxes"'),
        ([1], 'target of image 1 has no tensor "boxes"'),
        ({**GOOD, "boxes": torch.zeros(4)}, r"boxes of image 1 have shape \(4,\); expected \(n, 4\)"),
        ({**GOOD, "labels": torch.tensor([1, 2])}, r"labels of image 1 have shape \(2,\) for 1 boxes; .*, \(1,\)"),
        ({**GOOD, "labels": torch.tensor([1.0])}, r"labels of image 1 are torch\.float32; expected whole numbers"),
        ({**GOOD, "labels": torch.tensor([True])}, r"labels of image 1 are torch\.bool"),
        ({**GOOD, "labels": torch.tensor([4])}, "image 1 has the label 4; expected 1 to 3, the classes"),
        ({**GOOD, "labels": torch.tensor([0])}, "image 1 has the label 0"),
        ({**GOOD, "boxes": torch.tensor([[15.0, 15, 5, 5]])}, r"image 1 has the box \[15.0, 15.0, 5.0, 5.0\]; "),
        ({**GOOD, "boxes": torch.tensor([[5.0, 5, torch.nan, 9]])}, r"image 1 has the box \[5.0, 5.0, nan, 9.0\]"),
        ({**GOOD, "boxes": torch.tensor([[5.0, 5, torch.inf, 9]])}, r"with x0 <= x1 and y0 <= y1"),
    ],
)
def test_what_cannot_be_trained_with_is_refused_by_the_number_of_its_image(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        join_targets([GOOD, target], 3)
