from __future__ import annotations

import pytest
import torch

from entourage.detect.models.losses import class_weights


def test_weights_are_the_inverse_root_of_frequency_within_bounds() -> None:
    weights = class_weights(torch.tensor([400, 100, 1600, 0, 10_000]), bound=3.0)
    # The median object belongs to the class with 10,000.
    assert weights.tolist() == pytest.approx([3.0, 3.0, 2.5, 3.0, 1.0])
    assert class_weights(torch.tensor([1, 100, 400]), bound=100.0).tolist() == pytest.approx([20.0, 2.0, 1.0])


def test_weights_of_frequent_classes_are_bounded_below() -> None:
    weights = class_weights(torch.tensor([100, 100, 100, 100, 260]), bound=1.2)
    assert weights.tolist() == pytest.approx([1, 1, 1, 1, 1 / 1.2])


def test_equal_counts_or_a_bound_of_1_give_equal_weights() -> None:
    assert class_weights(torch.tensor([7, 7, 7]), bound=5.0).tolist() == [1, 1, 1]
    assert class_weights(torch.tensor([1, 10, 1000]), bound=1.0).tolist() == [1, 1, 1]
    assert class_weights(torch.zeros(3), bound=5.0).tolist() == [1, 1, 1]


def test_invalid_counts_raise() -> None:
    with pytest.raises(ValueError, match=r"bound is 0\.5; expected 1 or more"):
        class_weights(torch.tensor([1]), 0.5)
    with pytest.raises(ValueError, match=r"counts has shape .*; expected \(classes,\), none negative"):
        class_weights(torch.tensor([1, -1]), 2.0)
