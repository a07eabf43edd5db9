"""Checks of integers and labels."""

import numpy as np
import pytest

from entourage.validation import check_integers, check_sizes, class_codes


@pytest.mark.parametrize("value", [4.0, "4", None, True, 1 + 0j])
def test_values_that_are_not_integers_raise_with_the_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"^b is .*; expected a whole number$"):
        check_integers(a=1, b=value)
    with pytest.raises(ValueError, match=r"^b is .*; expected a whole number of 1 or more$"):
        check_sizes(a=1, b=value)


def test_integers_pass_and_sizes_are_one_or_more() -> None:
    check_integers(a=-1, b=np.int32(0), c=np.uint8(3))
    check_sizes(a=1, b=np.int64(7))
    with pytest.raises(ValueError, match=r"^a is 0; expected a whole number of 1 or more$"):
        check_sizes(a=0)


def test_class_codes_are_in_sorted_order() -> None:
    assert class_codes(np.array(["owl", "crow", "owl"])).tolist() == [1, 0, 1]
    assert class_codes(np.array([2.5, -1.0])).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"^labels are of kinds that cannot be compared: NoneType, int, str; expected"):
        class_codes(np.array(["owl", None, 3], dtype=object))
