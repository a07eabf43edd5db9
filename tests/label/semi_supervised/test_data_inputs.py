"""Images as users give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from entourage.label.semi_supervised.data import files_or_pixels, stack_images

IMAGE = np.zeros((4, 5, 3), dtype=np.uint8)


def test_arrays_and_lists_of_equal_ones_become_one_array() -> None:
    whole = np.stack([IMAGE, IMAGE + 1])
    assert stack_images(whole) is whole
    assert np.array_equal(stack_images([IMAGE, IMAGE + 1]), whole)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([], ValueError, "there are no images; expected at least one"),
        ([IMAGE, IMAGE[1:]], ValueError, r"image 1 has shape \(3, 5, 3\); expected \(4, 5, 3\) as of the first"),
        (7, TypeError, "images is 7; expected decoded images"),
        ([Path("a.png")], TypeError, "images are files; expected decoded ones, as `entourage.data.decode_pixels`"),
    ],
)
def test_what_is_no_array_of_images_is_refused(images: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stack_images(images)


def test_files_are_told_from_decoded_images() -> None:
    assert files_or_pixels(["a.png", Path("b.png")]) == [Path("a.png"), Path("b.png")]
    assert files_or_pixels([]) == []
    whole = IMAGE[None]
    assert files_or_pixels(whole) is whole
    assert np.array_equal(files_or_pixels([IMAGE, IMAGE]), np.stack([IMAGE, IMAGE]))
    assert np.array_equal(files_or_pixels(torch.from_numpy(whole)), whole)  # type: ignore[arg-type]
    assert files_or_pixels(pd.Series(["a.png"])) == [Path("a.png")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Path("folder"), "images is the path 'folder'"),
        ("photo.png", "images is the path 'photo.png'"),
        (None, "images is a NoneType"),
        (iter([Path("photo.png")]), "images is a list_iterator"),
        ([Path("photo.png"), 3], "images holds a int at 1"),
        ([IMAGE, "photo.png"], "images holds a ndarray at 0"),
    ],
)
def test_what_is_neither_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}; expected an array of pixels or a list of image files"):
        files_or_pixels(wrong)
