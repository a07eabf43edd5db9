"""Options of the student."""

from __future__ import annotations

import pytest

from entourage.label.semi_supervised import AugmentOptions
from entourage.label.semi_supervised.student import StudentOptions


@pytest.mark.parametrize(
    ("height", "width", "side"), [(32, 32, 32), (28, 28, 32), (12, 12, 16), (30, 44, 48), (64, 64, 64), (300, 200, 96)]
)
def test_small_images_keep_their_size_and_large_ones_fit(height: int, width: int, side: int) -> None:
    assert StudentOptions().side(height, width) == side
    assert StudentOptions(size=40).side(height, width) == 40


def test_invalid_sizes_raise() -> None:
    with pytest.raises(ValueError, match="size is 8; expected a whole number of 16 or more"):
        StudentOptions(size=8)


def test_presets_of_the_thesis_have_no_student() -> None:
    assert AugmentOptions.from_preset("default").student is None
    assert AugmentOptions.from_preset("thesis").student is False
    assert AugmentOptions.from_preset("original").student is False
    with pytest.raises(ValueError, match=r"student is .*expected"):
        AugmentOptions(student="yes")  # type: ignore[arg-type]
