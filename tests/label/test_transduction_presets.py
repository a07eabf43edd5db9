"""The presets have the documented values."""

from inspect import signature
from typing import Any

import pytest

from entourage.label.transduction import PRESETS, GraphTransduction


def test_the_default_preset_is_the_default_constructor() -> None:
    arguments = signature(GraphTransduction).parameters
    assert PRESETS["default"] == {name: arguments[name].default for name in PRESETS["default"]}


@pytest.mark.parametrize(
    ("name", "differences"),
    [
        ("default", {}),
        ("thesis", {"n_neighbors": None, "normalize": False, "walk_steps": 0}),
        (
            "original",
            {"squared": False, "symmetrize": "max", "normalize": False, "walk_steps": 0, "max_iter": 25, "tol": None},
        ),
    ],
)
def test_presets_differ_as_documented(name: str, differences: dict[str, Any]) -> None:
    default = PRESETS["default"]
    assert {key: value for key, value in PRESETS[name].items() if value != default[key]} == differences


def test_every_preset_is_listed() -> None:
    assert list(PRESETS) == ["default", "thesis", "original"]


def test_an_unknown_preset_raises() -> None:
    with pytest.raises(ValueError, match="preset 'best' is unknown; expected one of default, thesis, original"):
        GraphTransduction.from_preset("best")


def test_presets_are_read_only() -> None:
    with pytest.raises(TypeError):
        PRESETS["default"]["tol"] = 1.0  # type: ignore[index]
