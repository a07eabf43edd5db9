"""Tests of the default recipe and the default network options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster import Curriculum, LabelledSampler, PointSampler
from entourage.cluster.models.options import preset
from entourage.cluster.sampling.episodes import THESIS_ITEMS_CURRICULUM, THESIS_POINTS_CURRICULUM
from entourage.cluster.task import ITEMS_CURRICULUM, default_recipe, resolve_model_options

POINTS = PointSampler(3)
IMAGES = LabelledSampler(torch.zeros(30, 3, 8, 8), np.arange(30) % 10, 3)
DEFAULT, THESIS = preset("default"), preset("thesis")


@pytest.mark.parametrize(
    ("sampler", "name", "curriculum", "steps"),
    [
        (POINTS, "default", Curriculum(), 20_000),
        (IMAGES, "default", ITEMS_CURRICULUM, 4_000),
        (POINTS, "thesis", THESIS_POINTS_CURRICULUM, 20_000),
        (IMAGES, "thesis", THESIS_ITEMS_CURRICULUM, 4_000),
    ],
)
def test_default_recipe_depends_on_data_and_network(
    sampler: PointSampler | LabelledSampler, name: str, curriculum: Curriculum, steps: int
) -> None:
    recipe = default_recipe(sampler, preset(name), seed=3)
    assert (recipe.curriculum, recipe.steps, recipe.seed) == (curriculum, steps, 3)
    assert default_recipe(sampler, preset(name), steps=7).steps == 7


def test_sets_of_one_size_are_enlarged_for_many_clusters() -> None:
    many = LabelledSampler(torch.zeros(30, 2), np.arange(30) % 10, 10)
    assert default_recipe(many, THESIS).curriculum == THESIS_ITEMS_CURRICULUM.for_clusters(10)


def test_k_max_is_that_of_the_sampler_and_at_least_the_presets_for_attention() -> None:
    assert resolve_model_options(IMAGES, THESIS, THESIS_ITEMS_CURRICULUM).k_max == 3
    assert resolve_model_options(IMAGES, DEFAULT, ITEMS_CURRICULUM).k_max == DEFAULT.model.k_max == 20
    assert resolve_model_options(PointSampler(25), DEFAULT, ITEMS_CURRICULUM).k_max == 25
    assert resolve_model_options(IMAGES, DEFAULT, ITEMS_CURRICULUM, k_max=6).k_max == 6


def test_only_an_lstm_with_a_metric_has_a_fixed_set_size() -> None:
    assert (
        resolve_model_options(IMAGES, THESIS, THESIS_ITEMS_CURRICULUM, metric="full").set_size
        == THESIS_ITEMS_CURRICULUM.base_size
    )
    assert resolve_model_options(IMAGES, THESIS, THESIS_ITEMS_CURRICULUM).set_size is None
    options = resolve_model_options(IMAGES, DEFAULT, ITEMS_CURRICULUM, metric="diagonal")
    assert (options.metric, options.set_size) == ("diagonal", None)
    with pytest.raises(ValueError, match=r"curriculum has sets of 8 to 60 items; expected one set size"):
        resolve_model_options(IMAGES, THESIS, ITEMS_CURRICULUM, metric="full")
