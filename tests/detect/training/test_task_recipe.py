from __future__ import annotations

from dataclasses import asdict

import pytest

from entourage.detect.training.augmentation import DegradationOptions
from entourage.detect.training.task import Recipe

# The recipe in the configuration of a run: other names or values would prevent resuming runs.
RECORDED = {
    "steps": 20_000,
    "batch": 16,
    "margin": 0,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warmup": 300,
    "weight_decay": 0.02,
    "clip_norm": 5.0,
    "average": 0.999,
    "validation": 8,
    "epoch": 3000,
    "seed": 0,
}


def test_the_recipe_in_the_configuration_of_a_run() -> None:
    recipe = Recipe()
    assert asdict(recipe) == {**RECORDED, "window": asdict(recipe.window), "degradation": asdict(DegradationOptions())}


def test_options_of_the_training_loop() -> None:
    options = Recipe(steps=4100, epoch=2000, learning_rate=2e-3, clip_norm=3.0, seed=7).training_options()
    assert (options.epochs, options.max_steps, options.learning_rate) == (3, 4100, 2e-3)
    assert (options.warmup_steps, options.seed, options.schedule) == (300, 7, "cosine")
    assert (options.clip_norm, options.weight_decay, options.monitor) == (3.0, 0.02, None)
    assert options.checkpoint_every == 100


def test_windows_of_handwriting_vary_more() -> None:
    print_, hand = Recipe(), Recipe.for_handwriting()
    assert hand.window.zoom > print_.window.zoom
    assert hand.window.width > print_.window.width
    assert hand.window.width % 64 == hand.window.height % 64 == 0  # the coarsest map's stride


def test_invalid_numbers_raise() -> None:
    with pytest.raises(ValueError, match="steps is 0; expected a whole number of 1 or more"):
        Recipe(steps=0)
    with pytest.raises(ValueError, match="batch is 0; expected 1 or more"):
        Recipe(batch=0)
    with pytest.raises(ValueError, match="margin is -1; expected 0 crops or more"):
        Recipe(margin=-1)
