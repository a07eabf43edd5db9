from __future__ import annotations

import pytest

from entourage.detect.recipe import Recipe


def test_the_loop_is_told_the_same() -> None:
    options = Recipe(steps=4100, epoch=2000, learning_rate=2e-3, warmup=300, seed=7).training_options()
    assert (options.epochs, options.max_steps, options.learning_rate) == (3, 4100, 2e-3)
    assert (options.warmup_steps, options.seed, options.schedule) == (300, 7, "cosine")
    assert Recipe(steps=8).training_options().warmup_steps == 2  # a short run does not only warm up


def test_handwriting_varies_more_than_print() -> None:
    print_, hand = Recipe(), Recipe.for_handwriting()
    assert hand.window.zoom > print_.window.zoom
    assert hand.window.width > print_.window.width
    assert hand.window.width % 64 == hand.window.height % 64 == 0  # the coarsest map's stride


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="batch is 0"):
        Recipe(batch=0)
    with pytest.raises(ValueError, match="margin is -1"):
        Recipe(margin=-1)
