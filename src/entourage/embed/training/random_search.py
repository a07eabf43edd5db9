"""Random search (thesis, chapter 4): recipes drawn from ranges, judged by classes that were held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from entourage.embed.training.recipes import Recipe, with_learning_rate


@dataclass(frozen=True)
class Ranges:
    """Where recipes are drawn from; by default the intervals of the thesis."""

    learning_rate: tuple[float, float] = (1e-5, 0.1)  # all these are evenly spread in the logarithm
    weight_decay: tuple[float, float] = (1e-16, 0.1)
    temperature: tuple[float, float] = (1.0, 100.0)  # the text names none; the original code's lie between 24 and 79
    samples_per_class: tuple[int, int] = (5, 10)
    anchors_per_class: tuple[int, int] = (0, 4)
    batch: tuple[int, int] = (30, 100)  # the number of classes follows

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay", "temperature", "samples_per_class", "batch"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} goes from {low} to {high}; expected two numbers above 0, the smaller first")
        low, high = self.anchors_per_class
        if not 0 <= low <= high < self.samples_per_class[0]:
            raise ValueError(
                f"anchors_per_class goes from {low} to {high}; expected 0 up to fewer than {self.samples_per_class[0]},"
                " the fewest samples of a class"
            )


@dataclass(frozen=True)
class Trial:
    """A recipe and how well it did."""

    recipe: Recipe
    score: float


def draw_recipes(recipe: Recipe, ranges: Ranges | None = None, *, seed: int = 0) -> Iterator[Recipe]:
    """Recipes without end, each with its own draw from the ranges; all else is as in the one that is given.

    The learning rate that is drawn is that of the first stage of the loss; the others are scaled alike.

    Args:
        recipe: where to begin.
        ranges: where to draw from; the thesis' when None.
        seed: another one draws others.
    """
    ranges = ranges or Ranges()
    rng = np.random.default_rng(seed)
    while True:
        rate = _log_uniform(rng, ranges.learning_rate)
        samples = int(rng.integers(ranges.samples_per_class[0], ranges.samples_per_class[1] + 1))
        fewest, most = math.ceil(ranges.batch[0] / samples), ranges.batch[1] // samples
        yield replace(
            with_learning_rate(recipe, rate),
            weight_decay=_log_uniform(rng, ranges.weight_decay),
            samples_per_class=samples,
            classes_per_batch=int(rng.integers(fewest, max(fewest, most) + 1)),
            group=replace(
                recipe.group,
                temperature=_log_uniform(rng, ranges.temperature),
                anchors_per_class=int(rng.integers(ranges.anchors_per_class[0], ranges.anchors_per_class[1] + 1)),
            ),
        )


def random_search(
    score: Callable[[Recipe], float],
    recipe: Recipe,
    trials: int,
    ranges: Ranges | None = None,
    *,
    seed: int = 0,
) -> list[Trial]:
    """Tries recipes.

    Args:
        score: trains by a recipe and says how well it did on classes that were held out; more is better.
        recipe: where to begin.
        trials: how many to try.
        ranges: where to draw from; the thesis' when None.
        seed: of the draws.

    Returns:
        All trials, best first; one whose score is not a number (a training that diverged) comes last.
    """
    if trials < 1:
        raise ValueError(f"trials is {trials}; expected 1 or more")
    drawn = draw_recipes(recipe, ranges, seed=seed)
    tried = [Trial(one, score(one)) for _, one in zip(range(trials), drawn, strict=False)]
    return sorted(tried, key=lambda trial: -math.inf if math.isnan(trial.score) else trial.score, reverse=True)


def _log_uniform(rng: np.random.Generator, span: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(math.log(span[0]), math.log(span[1]))))
