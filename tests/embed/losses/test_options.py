"""Values and validation of the options of the Group Loss."""

import json
from dataclasses import FrozenInstanceError, asdict, fields, replace
from inspect import signature
from typing import Any

import numpy as np
import pytest

from entourage.embed import GroupLoss, GroupLossOptions
from entourage.embed.losses.options import PRESETS, loss_preset

ORIGINAL = {"anchor_choice": "first", "zero_diagonal": False, "count_anchors": True, "floor": 1e-12, "iterations": 1}


def test_default_preset_is_the_default_constructor_with_a_memory() -> None:
    arguments = signature(GroupLoss).parameters
    assert asdict(GroupLossOptions()) == {f.name: arguments[f.name].default for f in fields(GroupLossOptions)}
    assert replace(loss_preset("default"), memory=0) == GroupLoss().options == GroupLossOptions()
    assert loss_preset("default").memory == 5


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("thesis", {"zero_diagonal": True, "cross_entropy_weight": 0.0, "similarity": "pearson", "negatives": "clamp"}),
        ("thesis", {"anchor_choice": "random", "count_anchors": False, "floor": 0.0}),
        ("original-cub", {**ORIGINAL, "temperature": 24, "anchors_per_class": 2, "cross_entropy_weight": 1.0}),
        ("original-cars", {**ORIGINAL, "temperature": 79, "anchors_per_class": 3, "cross_entropy_weight": 1.0}),
        ("original-sop", {**ORIGINAL, "temperature": 54, "anchors_per_class": 2, "cross_entropy_weight": 1.0}),
    ],
)
def test_presets_match_the_thesis_and_the_original_code(name: str, published: dict[str, Any]) -> None:
    options = asdict(loss_preset(name))
    assert {field: options[field] for field in published} == published
    assert GroupLoss.from_preset(name).options == loss_preset(name)


@pytest.mark.parametrize("name", ["thesis", "original-cub", "original-cars", "original-sop"])
def test_later_options_are_off_in_published_presets(name: str) -> None:
    options = loss_preset(name)
    assert (options.label_smoothing, options.class_players, options.memory, options.objective) == (0, 0, 0, "labels")
    assert (options.sharpness, options.proxy_weight) == (1, 0)


def test_every_preset_is_listed() -> None:
    assert list(PRESETS) == ["default", "thesis", "original-cub", "original-cars", "original-sop"]


def test_arguments_of_a_preset_can_be_replaced() -> None:
    assert GroupLoss.from_preset("thesis", iterations=1).options.iterations == 1
    assert "iterations=7" in repr(GroupLoss(iterations=7))


def test_unknown_preset_raises_and_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="preset 'best' is unknown; expected one of default, thesis, original-cub, "):
        loss_preset("best")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("similarity", "euclid", "expected one of pearson, cosine, gaussian"),
        ("negatives", "error", "expected one of clamp, shift"),
        ("anchor_choice", "last", "expected one of random, first"),
        ("objective", "nothing", "expected one of labels, agreement"),
        ("temperature", 0.0, r"expected a number from 0.001 to 1e\+06"),
        ("temperature", 1e-40, r"expected a number from 0.001"),
        ("temperature", float("nan"), "expected a number from 0.001"),
        ("temperature", "hot", "expected a number from 0.001"),
        ("iterations", -1, "expected a whole number from 0 to 1,000,000"),
        ("iterations", 2.5, "expected a whole number from 0 to 1,000,000"),
        ("anchors_per_class", -1, "expected a whole number from 0 to 1,000,000"),
        ("anchors_per_class", 1.5, "expected a whole number from 0 to 1,000,000"),
        ("memory", -1, "expected a whole number from 0 to 1,000,000"),
        ("memory", 1.5, "expected a whole number from 0 to 1,000,000"),
        ("memory", 10**30, "expected a whole number from 0 to 1,000,000"),
        ("label_smoothing", "a", "expected a number from 0 to 0.999"),
        ("temperature", True, "expected a number from 0.001 to 1e"),
        ("zero_diagonal", "no", "expected True or False"),
        ("memory", True, "expected a whole number from 0 to 1,000,000"),
        ("cross_entropy_weight", -0.1, "expected a number from 0"),
        ("cross_entropy_weight", float("inf"), "expected a number from 0"),
        ("proxy_weight", float("inf"), "expected a number from 0"),
        ("class_players", -1.0, "expected a number from 0"),
        ("class_players", float("inf"), "expected a number from 0"),
        ("sharpness", 0.5, "expected a number from 1 to 32"),
        ("sharpness", float("nan"), "expected a number from 1 to 32"),
        ("sharpness", float("inf"), "expected a number from 1 to 32"),
        ("floor", float("nan"), "expected a number from 0 to 1"),
        ("label_smoothing", 1.0, "expected a number from 0 to 0.999"),
    ],
)
def test_invalid_values_raise(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is .*; {expected}"):
        GroupLoss(**{field: value})


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        loss_preset("default").floor = 1.0  # type: ignore[misc]


def test_numpy_numbers_are_converted() -> None:
    options = GroupLossOptions(iterations=np.int64(2), temperature=np.float32(2.0))  # type: ignore[arg-type]
    assert json.loads(json.dumps(asdict(options))) == asdict(GroupLossOptions(iterations=2, temperature=2.0))
