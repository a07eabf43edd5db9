from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest

from entourage.training import TrainingOptions
from entourage.training.options import StepRecipe


@dataclass(frozen=True, kw_only=True)
class ExampleRecipe(StepRecipe):
    batch: int = 4
    warmup: int = 300
    weight_decay: float = 0.1
    validation: int = 5
    epoch: int = 2000


def test_training_options_of_a_recipe() -> None:
    recipe = ExampleRecipe(steps=4100, optimizer="radam", learning_rate=2e-3, schedule="linear", seed=7)
    assert recipe.training_options() == TrainingOptions(
        epochs=3,  # the third is incomplete
        max_steps=4100,
        optimizer="radam",
        learning_rate=2e-3,
        weight_decay=0.1,
        schedule="linear",
        warmup_steps=300,
        seed=7,
        log_every=50,
    )


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (2000, 1), (2001, 2), (4000, 2)])
def test_number_of_epochs_covers_all_steps(steps: int, epochs: int) -> None:
    options = ExampleRecipe(steps=steps).training_options()
    assert (options.epochs, options.max_steps) == (epochs, steps)


def test_warmup_is_at_most_a_quarter() -> None:
    assert ExampleRecipe(steps=8).training_options().warmup_steps == 2
    assert ExampleRecipe(steps=1200).training_options().warmup_steps == 300


def test_fields_without_default_are_required() -> None:
    with pytest.raises(TypeError, match="'warmup', 'weight_decay', 'validation', and 'epoch'"):
        StepRecipe()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["steps", "epoch"])
def test_zero_counts_raise(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; expected a whole number of 1 or more"):
        replace(ExampleRecipe(), **{name: 0})


def test_numpy_integers_are_converted() -> None:
    drawn = replace(ExampleRecipe(), steps=np.int64(8), seed=np.uint8(3))
    assert drawn == replace(ExampleRecipe(), steps=8, seed=3)
    assert json.loads(json.dumps(asdict(drawn)))["steps"] == 8
