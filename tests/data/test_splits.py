from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from entourage.data.splits import sample_labels, stratified_split

# Classes of 10, 45, 1, 2 and 3 images in random order; there is no class 3.
LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 4, 5], [10, 45, 1, 2, 3]))


def per_class(indices: Any) -> list[int]:
    return [int((LABELS[indices] == label).sum()) for label in (0, 1, 2, 4, 5)]


@pytest.mark.parametrize(
    ("fraction", "train"),
    [(0.7, [7, 32, 1, 1, 2]), (0.5, [5, 23, 1, 1, 2]), (0.01, [1, 1, 1, 1, 1]), (0.99, [9, 44, 1, 1, 2])],
)
def test_each_class_is_split_in_proportion(fraction: float, train: list[int]) -> None:
    split = stratified_split(LABELS, fraction, seed=3)
    assert split.dtype == np.uint8
    assert per_class(split == 0) == train  # 0.7 of 45 is 31.5, rounded to 32
    assert set(split.tolist()) <= {0, 1}


def test_the_split_depends_on_the_seed() -> None:
    first = stratified_split(LABELS, 0.7, seed=0)
    np.testing.assert_array_equal(first, stratified_split(LABELS.tolist(), 0.7, seed=0))
    assert (first != stratified_split(LABELS, 0.7, seed=1)).any()
    every = np.mean([stratified_split(LABELS, 0.5, seed=seed) for seed in range(400)], axis=0)
    # Each image of class 0 is equally often in both parts: 5 standard errors are 0.125.
    np.testing.assert_allclose(every[LABELS == 0], 0.5, atol=0.125)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_invalid_fractions_are_rejected(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"train_fraction is .*; expected a fraction above 0 and below 1"):
        stratified_split(LABELS, fraction, seed=0)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (5, [1, 1, 1, 1, 1]),
        (9, [2, 2, 1, 2, 2]),  # one of each class, then one more of each class with more images
        (11, [3, 3, 1, 2, 2]),
        (12, [3, 3, 1, 2, 3]),
        (36, [10, 20, 1, 2, 3]),
        (61, [10, 45, 1, 2, 3]),
        (1.0, [10, 45, 1, 2, 3]),
        (0.5, [5, 23, 1, 1, 2]),
        (0.02, [1, 1, 1, 1, 1]),
        (np.int64(5), [1, 1, 1, 1, 1]),
        (np.float64(0.5), [5, 23, 1, 1, 2]),
    ],
)
def test_labels_are_spread_over_the_classes(amount: Any, expected: list[int]) -> None:
    sampled = sample_labels(LABELS, amount, seed=2)
    counts = per_class(sampled)
    assert sum(counts) == len(set(sampled.tolist())) == sum(expected)
    if amount == 11:  # the last two labels go to two of three classes at random
        assert sorted(counts) == sorted(expected)
    else:
        assert counts == expected
    assert (np.diff(sampled) > 0).all()
    assert sampled.dtype == np.int64


def test_the_remainder_goes_to_random_classes() -> None:
    labels = np.repeat(np.arange(10), 20)
    extra = np.zeros(10)
    for seed in range(300):
        counts = np.bincount(labels[sample_labels(labels, 13, seed)], minlength=10)
        assert sorted(counts.tolist()) == [1] * 7 + [2] * 3
        extra += counts - 1
    np.testing.assert_allclose(extra / 300, 0.3, atol=0.13)  # 5 standard errors of a fraction of 0.3 in 300


def test_larger_samples_include_smaller_ones() -> None:
    labels = np.repeat(np.arange(10), 50)
    draws = [set(sample_labels(labels, amount, seed=7).tolist()) for amount in (10, 50, 100, 0.5, 1.0)]
    assert all(fewer < more for fewer, more in pairwise(draws))
    assert draws[0] != set(sample_labels(labels, 10, seed=8).tolist())
    assert len({int(index) % 50 for index in draws[1]}) > 5  # not the same images of each class


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        (4, r"amount is 4 labels; expected from 5 \(one per class\) to 61 \(all images\)"),
        (62, r"amount is 62 labels; expected from 5 \(one per class\) to"),
        (0, r"amount is 0 labels; expected from 5 \(one per class\) to"),
        (-3, r"amount is -3 labels; expected from 5 \(one per class\) to"),
        (0.0, r"amount is 0\.0; expected an int"),
        (1.5, r"amount is 1\.5; expected an int"),
        (float("nan"), r"amount is nan; expected an int \(total number\) or a"),
        (True, r"amount is True; expected an int \(total number\) or a"),
        ("5", r"amount is '5'; expected an int \(total number\) or a"),
    ],
)
def test_invalid_amounts_are_rejected(amount: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_labels(LABELS, amount, seed=0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], r"shape \(0,\); expected integers, shape \(n,\)"),
        ([[1]], r"shape \(1, 1\); expected integers, shape \(n,\)"),
        (["a", "b"], "expected integers"),
        ([0.0, 1.0], r"float64.*; expected integers, shape \(n,\)"),
        ([0, -1], "labels .* -1; expected classes from 0"),
    ],
)
def test_invalid_labels_are_rejected(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_labels(labels, 1.0, seed=0)
    with pytest.raises(ValueError, match=message):
        stratified_split(labels, 0.5, seed=0)
