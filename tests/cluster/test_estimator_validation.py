from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from entourage.cluster.estimator import validate_items

POINT, PICTURE = (2,), (3, 4, 4)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32),
        np.array([[1, 2.0], [3, 4]], dtype=object),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
    ],
)
def test_numbers_of_any_kind_are_taken(X: object) -> None:
    items = validate_items(X, POINT, torch.float64)  # type: ignore[arg-type]
    assert items.dtype == torch.float64
    assert not items.requires_grad
    assert items.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sparse.eye(2), "X is a sparse matrix; expected a dense array"),
        ([["1", "2"], ["3", "4"]], "X holds text; expected real numbers"),
        (np.array([["a", 1.0], ["b", 2.0]], dtype=object), "X is no array; expected rows of numbers"),
        ([[1.0, 2.0], [3.0]], "X is no array; expected rows of numbers, all of one length"),
        (np.array([["2020-01-01"] * 2] * 2, dtype="datetime64[D]"), "X holds values of type datetime64"),
        (None, "X is no array|X has shape"),
        (np.empty((0, 2)), "X has no items; expected two"),
        ([[0.0, 1.0]], "X has one item; expected two"),
        ([[0.0, 1.0, 2.0]] * 3, "X has 3 columns; the network was trained for 2"),
    ],
)
def test_what_is_wrong_is_one_line(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        validate_items(X, POINT, torch.float64)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_pictures_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"X has items of shape \(3, 5, 4\); the network was trained for \(3, 4, 4\)"):
        validate_items(np.zeros((2, 3, 5, 4)), PICTURE, torch.float32)


def test_single_precision_takes_less_than_double() -> None:
    X = [[0.0, 1.0], [1e200, 0.0]]
    assert validate_items(X, POINT, torch.float64)[1, 0] == 1e200
    with pytest.raises(ValueError, match=r"row 1 that is not finite; expected numbers up to 3\.4e\+38"):
        validate_items(X, POINT, torch.float32)
