"""Recipes compared with the thesis and the original code, and their changes and validation."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from entourage.embed.losses.options import PRESETS, loss_preset
from entourage.embed.training.recipes import (
    RECIPES,
    Recipe,
    Stage,
    recipe_from_dict,
    recipe_preset,
    with_epochs,
    with_learning_rate,
    with_loss,
)


def test_each_loss_preset_has_a_recipe() -> None:
    assert list(RECIPES) == list(PRESETS)
    assert all(RECIPES[name].group == loss_preset(name) for name in PRESETS)
    assert recipe_preset("default") == Recipe()


def test_recipe_of_the_thesis() -> None:
    thesis = recipe_preset("thesis")
    assert thesis.optimizer == "adam"
    assert thesis.stages == (Stage(10, 2e-4, "classification"), Stage(60, 2e-4, schedule="step", milestones=(30,)))
    assert (thesis.size, thesis.decoded_side) == (227, 256)
    assert 30 <= thesis.classes_per_batch * thesis.samples_per_class <= 100


@pytest.mark.parametrize(
    ("name", "batch", "rate", "decay"),
    [
        ("original-cub", (6, 9), 1.5637e-4, 6.06e-6),
        ("original-cars", (5, 7), 2e-4, 4.86e-7),
        ("original-sop", (10, 6), 6.0777e-4, 5.27e-12),
    ],
)
def test_recipes_of_the_original_code(name: str, batch: tuple[int, int], rate: float, decay: float) -> None:
    recipe = recipe_preset(name)
    assert (recipe.classes_per_batch, recipe.samples_per_class) == batch
    assert (recipe.optimizer, recipe.weight_decay, recipe.head_rate, recipe.head) == ("radam", decay, 1.0, "linear")
    assert [stage.learning_rate for stage in recipe.stages] == pytest.approx([3e-4, rate, rate / 10, rate / 10])
    assert [stage.from_best for stage in recipe.stages] == [False, False, True, True]
    assert [stage.epochs for stage in recipe.stages] == [10, 30, 20, 20]
    assert [stage.weight_decay for stage in recipe.stages] == [0.0, None, None, None]
    assert recipe.decoded_side == 256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": ()}, "stages is empty; expected one stage or more"),
        ({"crop": 0.0}, r"crop is 0.0; expected a number above 0 and up to 1"),
        ({"classes_per_batch": 0}, "classes_per_batch is 0; expected 1 or more"),
        ({"samples_per_class": 0}, "samples_per_class is 0; expected 1 or more"),
        ({"head_rate": 0.0}, r"head_rate is 0.0; expected a number above 0"),
    ],
)
def test_invalid_recipes_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**change)


def test_unknown_recipe_raises_and_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="recipe 'soup' is unknown; expected one of default, thesis, original-cub, "):
        recipe_preset("soup")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_restored_from_json(name: str) -> None:
    assert recipe_from_dict(json.loads(json.dumps(asdict(recipe_preset(name))))) == recipe_preset(name)


def test_stage_without_weight_decay_uses_that_of_the_recipe() -> None:
    stored = json.loads(json.dumps(asdict(Recipe())))
    for stage in stored["stages"]:
        del stage["weight_decay"]
    assert recipe_from_dict(stored) == Recipe()


def test_recipe_of_another_version_raises() -> None:
    with pytest.raises(ValueError, match=r"recipe: .*'colour'.*; expected one of this version"):
        recipe_from_dict({**asdict(Recipe()), "colour": "blue"})
    with pytest.raises(ValueError, match=r"recipe: .*'view'.*; expected one of this version"):
        recipe_from_dict({})


@pytest.mark.parametrize(("name", "epochs"), [("default", 3), ("thesis", 7), ("original-cub", 4), ("original-cub", 41)])
def test_epochs_are_distributed_in_proportion(name: str, epochs: int) -> None:
    recipe, after = recipe_preset(name), with_epochs(recipe_preset(name), epochs)
    assert [stage for stage in recipe.stages if stage.only_head] == [stage for stage in after.stages if stage.only_head]
    before = [stage for stage in recipe.stages if not stage.only_head]
    counts = [stage.epochs for stage in after.stages if not stage.only_head]
    assert sum(counts) == epochs
    assert min(counts) >= 1
    total = sum(stage.epochs for stage in before)
    for stage, count in zip(before, counts, strict=True):
        assert abs(count - epochs * stage.epochs / total) < 2
    assert with_epochs(recipe, total).stages[-1].milestones == before[-1].milestones


def test_fewer_epochs_than_stages_raise() -> None:
    with pytest.raises(ValueError, match="epochs is 3; expected 4 or more"):
        with_epochs(recipe_preset("original-cub"), 3)


def test_learning_rate_applies_to_the_first_metric_stage() -> None:
    after = with_learning_rate(recipe_preset("original-cars"), 1e-3)
    assert [stage.learning_rate for stage in after.stages] == pytest.approx([1.5e-3, 1e-3, 1e-4, 1e-4])
    with pytest.raises(ValueError, match="learning_rate is 0; expected a number above 0"):
        with_learning_rate(Recipe(), 0)


def test_baseline_losses_use_a_linear_head() -> None:
    assert with_loss(Recipe(), "group") == Recipe()
    assert (Recipe().head, with_loss(Recipe(), "cross-entropy").head) == ("centres", "linear")
    assert with_loss(Recipe(), "proxy-anchor").loss == "proxy-anchor"


def test_unknown_loss_raises() -> None:
    with pytest.raises(ValueError, match="loss is 'hope'; expected group or one of cross-entropy, triplet"):
        Recipe(loss="hope")
