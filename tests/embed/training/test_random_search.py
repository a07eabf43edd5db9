"""Ranges and distribution of the drawn recipes, and order of the trials."""

import math
from itertools import islice

import pytest

from entourage.embed.training.random_search import SearchSpace, random_search, sample_recipes
from entourage.embed.training.recipes import Recipe, Stage

BASE = Recipe(stages=(Stage(2, 1e-3, "classification"), Stage(3, 1e-4)), head="cosine")


def test_draws_are_within_the_ranges_of_the_thesis() -> None:
    for drawn in islice(sample_recipes(BASE), 300):
        # The range applies to the metric stage; the learning rate of the stage before is scaled by the same factor.
        assert 1e-5 <= drawn.stages[1].learning_rate <= 0.1
        assert drawn.stages[0].learning_rate == pytest.approx(drawn.stages[1].learning_rate * 10)
        assert 1e-16 <= drawn.weight_decay <= 0.1
        assert 1 <= drawn.group.temperature <= 100
        assert 5 <= drawn.samples_per_class <= 10
        assert 0 <= drawn.group.anchors_per_class <= 4
        assert 30 <= drawn.samples_per_class * drawn.classes_per_batch <= 100
        assert (drawn.head, drawn.stages[1].epochs) == ("cosine", 3)


def test_draws_are_log_uniform() -> None:
    many = list(islice(sample_recipes(BASE), 400))
    for values, middle in (
        ([one.stages[1].learning_rate for one in many], 1e-3),
        ([one.weight_decay for one in many], math.sqrt(1e-17)),
        ([one.group.temperature for one in many], 10.0),
    ):
        # Half of the values are below the middle; six standard deviations of a fraction of 400 are 0.15.
        assert abs(sum(value < middle for value in values) / 400 - 0.5) < 0.15
    assert {one.group.anchors_per_class for one in many} == set(range(5))
    assert {one.samples_per_class for one in many} == set(range(5, 11))


def test_equal_seeds_give_equal_results() -> None:
    one, two, other = (list(islice(sample_recipes(BASE, seed=seed), 3)) for seed in (1, 1, 2))
    assert one == two
    assert one != other
    assert len(set(one)) == 3


def test_trials_are_sorted_with_diverged_ones_last() -> None:
    scores = iter([0.3, math.nan, 0.7, 0.5])
    tried: list[Recipe] = []

    def score(recipe: Recipe) -> float:
        tried.append(recipe)
        return next(scores)

    trials = random_search(score, BASE, 4)
    assert [trial.recipe for trial in trials] == [tried[i] for i in (2, 3, 0, 1)]
    assert [trial.score for trial in trials[:3]] == [0.7, 0.5, 0.3]


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ({"learning_rate": (0.1, 0.01)}, r"learning_rate is \(0.1, 0.01\); expected two numbers above 0"),
        ({"weight_decay": (0.0, 0.1)}, r"weight_decay is \(0.0, 0.1\); expected"),
        ({"anchors_per_class": (0, 5)}, r"anchors_per_class is \(0, 5\); expected numbers from 0 to 4"),
    ],
)
def test_invalid_ranges_raise(span: dict[str, tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSpace(**span)  # type: ignore[arg-type]


def test_zero_trials_raise() -> None:
    with pytest.raises(ValueError, match="trials is 0; expected 1 or more"):
        random_search(lambda _: 0.0, BASE, 0)
