"""The presets say what they are said to say."""

from dataclasses import FrozenInstanceError, asdict, fields
from inspect import signature
from typing import Any

import pytest

from entourage.label import PRESETS, GraphTransduction, TransductionOptions, preset


def test_the_default_preset_is_the_default_constructor() -> None:
    arguments = signature(GraphTransduction).parameters
    assert asdict(preset("default")) == {f.name: arguments[f.name].default for f in fields(TransductionOptions)}


@pytest.mark.parametrize(
    ("name", "differences"),
    [
        ("default", {}),
        ("thesis", {"n_neighbors": None, "normalize": False, "walk": 0}),
        (
            "original",
            {"squared": False, "symmetrize": "max", "normalize": False, "walk": 0, "max_iter": 25, "tol": None},
        ),
    ],
)
def test_presets_differ_as_documented(name: str, differences: dict[str, Any]) -> None:
    default = asdict(TransductionOptions())
    assert {field: value for field, value in asdict(preset(name)).items() if value != default[field]} == differences


def test_every_preset_is_listed() -> None:
    assert list(PRESETS) == ["default", "thesis", "original"]


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="preset 'best' is unknown; expected one of default, thesis, original"):
        preset("best")


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        preset("default").tol = 1.0  # type: ignore[misc]
