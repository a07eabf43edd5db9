from __future__ import annotations

from typing import Literal

import pytest

from entourage.validation import check_choice


def test_a_word_that_is_no_choice_is_refused_with_those_that_are() -> None:
    check_choice("pitch", "low", Literal["low", "high"])
    with pytest.raises(ValueError, match="pitch is 'flat'; expected one of low, high"):
        check_choice("pitch", "flat", Literal["low", "high"])
