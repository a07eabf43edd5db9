from __future__ import annotations

from typing import Literal

import pytest

from entourage.validation import check_choice, preset

TABLE = {"default": 1, "thesis": 2}


def test_values_outside_a_literal_raise_with_the_list_of_choices() -> None:
    check_choice("pitch", "low", Literal["low", "high"])
    with pytest.raises(ValueError, match="pitch is 'flat'; expected one of low, high"):
        check_choice("pitch", "flat", Literal["low", "high"])


@pytest.mark.parametrize("choices", [("low", "high"), ["low", "high"], {"low": 1, "high": 2}])
def test_choices_may_be_any_collection_of_names(choices: object) -> None:
    check_choice("pitch", "high", choices)
    with pytest.raises(ValueError, match="pitch is None; expected one of low, high"):
        check_choice("pitch", None, choices)


@pytest.mark.parametrize("value", [1, ["low"], {}])
def test_values_of_other_types_are_not_choices(value: object) -> None:
    with pytest.raises(ValueError, match=r"pitch is .*; expected one of low, high"):
        check_choice("pitch", value, Literal["low", "high"])


def test_presets_are_returned_by_name() -> None:
    assert preset(TABLE, "thesis") == 2


def test_unknown_presets_raise_with_the_list_of_names() -> None:
    with pytest.raises(ValueError, match=r"^preset 'best' is unknown; expected one of default, thesis$"):
        preset(TABLE, "best")
    with pytest.raises(ValueError, match=r"^recipe 'best' is unknown; expected one of default, thesis$"):
        preset(TABLE, "best", "recipe")
