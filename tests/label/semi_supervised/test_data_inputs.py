"""Image arguments: arrays, lists of arrays, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from entourage.label.semi_supervised.data import files_or_pixels, stack_images

IMAGE = np.zeros((4, 5, 3), dtype=np.uint8)


def test_arrays_and_lists_of_images_become_one_array() -> None:
    stacked = np.stack([IMAGE, IMAGE + 1])
    assert stack_images(stacked) is stacked
    assert np.array_equal(stack_images([IMAGE, IMAGE + 1]), stacked)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([], ValueError, "images is empty; expected at least one"),
        ([IMAGE, IMAGE[1:]], ValueError, r"image 1 has shape \(3, 5, 3\); expected \(4, 5, 3\)"),
        (7, TypeError, "images is 7; expected decoded images"),
        ([Path("a.png")], TypeError, "images has files; expected decoded images"),
    ],
)
def test_other_types_than_image_arrays_raise(images: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stack_images(images)


def test_files_and_decoded_images_are_distinguished() -> None:
    assert files_or_pixels(["a.png", Path("b.png")]) == [Path("a.png"), Path("b.png")]
    assert files_or_pixels([]) == []
    batch = IMAGE[None]
    assert files_or_pixels(batch) is batch
    assert np.array_equal(files_or_pixels([IMAGE, IMAGE]), np.stack([IMAGE, IMAGE]))
    assert np.array_equal(files_or_pixels(torch.from_numpy(batch)), batch)  # type: ignore[arg-type]
    assert files_or_pixels(pd.Series(["a.png"])) == [Path("a.png")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (Path("folder"), "images is the path 'folder'"),
        ("photo.png", "images is the path 'photo.png'"),
        (None, "images is a NoneType"),
        (iter([Path("photo.png")]), "images is a list_iterator"),
        ([Path("photo.png"), 3], "images holds a int at 1"),
        ([IMAGE, "photo.png"], "images holds a ndarray at 0"),
    ],
)
def test_neither_files_nor_images_raises(wrong: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=f"^{problem}; expected an array of pixels or a list of image files"):
        files_or_pixels(wrong)
