"""What is trained where nobody says otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster import Curriculum, LabelledSampler, PointSampler, preset
from entourage.cluster.sampling.episodes import EPISODE, FIXED
from entourage.cluster.task import SETS, fitting_options, usual_recipe

POINTS = PointSampler(3)
IMAGES = LabelledSampler(torch.zeros(30, 3, 8, 8), np.arange(30) % 10, 3)
DEFAULT, THESIS = preset("default"), preset("thesis")


@pytest.mark.parametrize(
    ("sampler", "name", "curriculum", "steps"),
    [
        (POINTS, "default", Curriculum(), 20_000),
        (IMAGES, "default", SETS, 4_000),
        (POINTS, "thesis", FIXED, 20_000),
        (IMAGES, "thesis", EPISODE, 4_000),
    ],
)
def test_sets_and_steps_are_those_of_the_data_and_of_the_network(
    sampler: PointSampler | LabelledSampler, name: str, curriculum: Curriculum, steps: int
) -> None:
    recipe = usual_recipe(sampler, preset(name), seed=3)
    assert (recipe.curriculum, recipe.steps, recipe.seed) == (curriculum, steps, 3)
    assert usual_recipe(sampler, preset(name), steps=7).steps == 7


def test_sets_of_one_size_are_large_enough_for_the_clusters_of_the_sampler() -> None:
    many = LabelledSampler(torch.zeros(30, 2), np.arange(30) % 10, 10)
    assert usual_recipe(many, THESIS).curriculum == EPISODE.for_clusters(10)


def test_an_lstm_counts_as_far_as_its_sets_and_attention_as_far_as_the_preset_at_least() -> None:
    assert fitting_options(IMAGES, THESIS, EPISODE).k_max == 3
    assert fitting_options(IMAGES, DEFAULT, SETS).k_max == DEFAULT.model.k_max == 20
    assert fitting_options(PointSampler(25), DEFAULT, SETS).k_max == 25
    assert fitting_options(IMAGES, DEFAULT, SETS, k_max=6).k_max == 6


def test_only_an_lstm_that_reads_distances_has_its_size_of_sets() -> None:
    assert fitting_options(IMAGES, THESIS, EPISODE, metric="full").set_size == EPISODE.base_size
    assert fitting_options(IMAGES, THESIS, EPISODE).set_size is None
    options = fitting_options(IMAGES, DEFAULT, SETS, metric="diagonal")
    assert (options.metric, options.set_size) == ("diagonal", None)
    with pytest.raises(ValueError, match=r"sets have 8 to 60 items; .* expected sets of one size"):
        fitting_options(IMAGES, THESIS, SETS, metric="full")
