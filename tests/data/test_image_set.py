from typing import Any

import numpy as np
import pytest

from entourage.data.image_set import EncodedImages, ImageSet, RawImages
from entourage.data.media import UnreadableImageError


def make(**changes: Any) -> ImageSet:
    pixels = np.repeat(np.arange(4, dtype=np.uint8), 3 * 2 * 2).reshape(4, 3, 2, 2)
    fields: dict[str, Any] = {
        "name": "toys",
        "source": RawImages(pixels, np.arange(4)),
        "labels": np.array([0, 1, 1, 2]),
        "class_names": ["a", "b", "c"],
        "split": np.array([0, 0, 1, 1], dtype=np.uint8),
        "items": ["p", "q", "r", "s"],
        "sizes": np.array([[1, 2], [3, 4], [5, 6], [7, 8]]),
        "angles": np.array([0, 5, 10, 15]),
    }
    return ImageSet(**(fields | changes))


def value(images: ImageSet, index: int) -> int:
    return int(np.asarray(images.image(index))[0, 0, 0])


@pytest.mark.parametrize(
    "indices", [[3, 1], np.array([3, 1]), np.array([3, 1], dtype=np.uint8)], ids=["list", "array", "bytes"]
)
def test_a_subset_selects_images_labels_splits_items_sizes_and_angles(indices: Any) -> None:
    part = make().subset(indices)
    assert len(part) == 2
    assert [value(part, 0), value(part, 1), value(part, -1)] == [3, 1, 1]
    assert part.labels.tolist() == [2, 1]
    assert part.split.tolist() == [1, 0]
    assert part.items == ["s", "q"]
    assert part.class_names == ["a", "b", "c"]
    assert part.sizes is not None
    assert part.sizes.tolist() == [[7, 8], [3, 4]]
    assert part.angles is not None
    assert part.angles.tolist() == [15, 5]


def test_a_subset_may_be_a_mask_or_empty() -> None:
    images = make(sizes=None, angles=None)
    assert images.subset(images.split == 1).items == ["r", "s"]
    assert images.subset(images.split == 1).subset([1]).items == ["s"]
    assert len(images.subset([])) == 0
    assert images.subset([0]).sizes is None


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([4], "from 4 to 4; expected 0 to 3"),
        ([-1], "from -1 to -1; expected 0 to 3"),
        ([1, 1], "item 'q' occurs 2 times"),
        ([0.5], "expected a list of integers"),
        ([[0]], "expected a list of integers"),
        (np.array([True]), r"mask of shape \(1,\) for 4 images"),
    ],
)
def test_invalid_indices_are_rejected(indices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^toys: .*{message}"):
        make().subset(indices)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1, 1])}, r"labels of shape \(3,\) for 4 images; expected \(4,\)"),
        ({"split": np.zeros((4, 1), dtype=np.uint8)}, r"split of shape \(4, 1\)"),
        ({"items": ["p"]}, r"items of shape \(1,\)"),
        ({"items": ["p", "q", "p", "s"]}, "item 'p' occurs 2 times; expected unique"),
        ({"sizes": np.zeros((4, 3), dtype=np.int64)}, r"sizes of shape \(4, 3\) for 4 images; expected \(4, 2\)"),
        ({"angles": np.zeros(5, dtype=np.int64)}, r"angles of shape \(5,\)"),
        ({"labels": np.array([0, 3, 1, 3])}, r"label of image 1 is 3; expected 0 to 2 \(2 such\)"),
        ({"labels": np.array([0, 1, -1, 2])}, r"label of image 2 is -1; expected 0 to 2"),
        ({"split": np.array([0, 0, 0, 2], dtype=np.uint8)}, "split of image 3 is 2; expected 0 to 1"),
    ],
)
def test_inconsistent_fields_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^toys: .*{message}"):
        make(**changes)


def test_errors_name_the_image() -> None:
    with pytest.raises(IndexError, match="toys: image 4 of 4; expected an index below 4"):
        make().image(4)
    broken = EncodedImages(np.zeros(4, dtype=np.uint8), np.arange(4), np.arange(1, 5))
    with pytest.raises(UnreadableImageError, match=r"^cannot read image s of toys: not an image") as caught:
        make(source=broken).image(-1)
    assert caught.value.reason.startswith("not an image")
