import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest

from entourage.training import TrainingOptions


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingOptions().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    ["epochs", "max_steps", "accumulate", "validate_every", "patience", "checkpoint_every", "log_every"],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_are_positive_integers(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}; expected a whole number of 1 or more"):
        TrainingOptions(**{"monitor": "accuracy", name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["warmup_steps", "seed", "workers"])
def test_zero_is_valid(name: str) -> None:
    assert getattr(TrainingOptions(**{name: 0}), name) == 0  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{name} is -1"):
        TrainingOptions(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["epochs", "max_steps", "patience", "seed", "warmup_steps"])
def test_numpy_integers_are_converted(name: str) -> None:
    options = TrainingOptions(**{"monitor": "accuracy", name: np.int64(3)})  # type: ignore[arg-type]
    assert (type(getattr(options, name)), getattr(options, name)) == (int, 3)
    milestones: Any = list(np.array([1, 3]))
    found = TrainingOptions(schedule="step", milestones=milestones).milestones
    assert (found, {type(epoch) for epoch in found}) == ((1, 3), {int})


@pytest.mark.parametrize("name", ["learning_rate", "gamma", "clip_norm"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_rates_are_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}; expected a number above 0"):
        TrainingOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["learning_rate", "gamma", "clip_norm", "weight_decay", "momentum"])
@pytest.mark.parametrize("value", ["a", True, [1e-3]])
def test_non_numbers_raise(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is {re.escape(repr(value))}; expected a number"):
        TrainingOptions(**{name: value})  # type: ignore[arg-type]


def test_only_clip_norm_is_optional() -> None:
    assert TrainingOptions(clip_norm=None).clip_norm is None
    assert TrainingOptions(learning_rate=np.float32(0.5)).learning_rate == 0.5  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="learning_rate is None; expected a number above 0"):
        TrainingOptions(learning_rate=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("weight_decay", -0.1), ("momentum", 1.0), ("momentum", math.nan)])
def test_fractions_are_within_bounds(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}"):
        TrainingOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["optimizer", "schedule", "precision", "mode"])
def test_unknown_choices_raise(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is 'other'; expected one of .*, "):
        TrainingOptions(**{name: "other"})  # type: ignore[arg-type]


@pytest.mark.parametrize("milestones", [(3, 2), (2, 2), (0, 1), ("a",), (1.5,), (True,), 3])
def test_milestones_must_rise(milestones: Any) -> None:
    with pytest.raises(ValueError, match="expected rising epochs from 1"):
        TrainingOptions(schedule="step", milestones=milestones)


def test_milestones_require_the_step_schedule() -> None:
    with pytest.raises(ValueError, match="milestones is set for the schedule 'cosine'; expected the schedule 'step'"):
        TrainingOptions(schedule="cosine", milestones=(2,))


@pytest.mark.parametrize(("name", "value"), [("patience", 2), ("restore_best", True)])
def test_best_weights_require_a_metric(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name} is set .*; expected monitor"):
        TrainingOptions(**{name: value})  # type: ignore[arg-type]
