from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from entourage.cluster.items import validate_items

POINT, IMAGE = (2,), (3, 4, 4)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32),
        np.array([[1, 2.0], [3, 4]], dtype=object),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
    ],
)
def test_real_numbers_of_any_type_are_accepted(X: object) -> None:
    items = validate_items(X, POINT, torch.float64)  # type: ignore[arg-type]
    assert items.dtype == torch.float64
    assert not items.requires_grad
    assert items.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sparse.eye(2), "X is a sparse matrix; expected a dense array"),
        ([["1", "2"], ["3", "4"]], "X contains text; expected real numbers"),
        (np.array([["a", 1.0], ["b", 2.0]], dtype=object), "expected rows of numbers"),
        ([[1.0, 2.0], [3.0]], "expected rows of numbers, all of one length"),
        (np.array([["2020-01-01"] * 2] * 2, dtype="datetime64[D]"), "X contains values of type datetime64"),
        (None, "X cannot be converted|X has shape"),
        (np.empty((0, 2)), "X has no items; expected two"),
        ([[0.0, 1.0]], "X has one item; expected two"),
        ([[0.0, 1.0, 2.0]] * 3, "X has 3 columns; expected 2"),
    ],
)
def test_invalid_items_raise_with_one_line(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        validate_items(X, POINT, torch.float64)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_images_of_another_size_raise() -> None:
    with pytest.raises(ValueError, match=r"X has items of shape \(3, 5, 4\); expected \(3, 4, 4\)"):
        validate_items(np.zeros((2, 3, 5, 4)), IMAGE, torch.float32)


def test_single_precision_has_a_smaller_range_than_double() -> None:
    X = [[0.0, 1.0], [1e200, 0.0]]
    assert validate_items(X, POINT, torch.float64)[1, 0] == 1e200
    with pytest.raises(ValueError, match=r"row 1 that is not finite; expected numbers up to 3\.4e\+38"):
        validate_items(X, POINT, torch.float32)
