from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from entourage.label.ensemble.views import FeatureViews


def test_columns_of_different_units_are_standardised_and_ranked() -> None:
    X = np.random.default_rng(0).lognormal(size=(200, 3)) * [1, 1000, 1e-3]
    views = FeatureViews(X).matrices
    assert list(views) == ["standard", "rank"]
    np.testing.assert_allclose(views["standard"].std(axis=0), 1)
    np.testing.assert_allclose(views["rank"].std(axis=0), 1, rtol=0.02)
    assert (np.argsort(views["rank"][:, 1]) == np.argsort(X[:, 1])).all()


def test_columns_of_one_unit_are_also_given_unchanged() -> None:
    X = np.random.default_rng(0).uniform(0, 16, size=(200, 4))
    views = FeatureViews(X).matrices
    assert list(views) == ["given", "standard", "rank"]
    np.testing.assert_array_equal(views["given"], X)


def test_rows_of_length_1_and_sparse_features_are_left_alone() -> None:
    X = np.random.default_rng(0).normal(size=(30, 8))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    assert list(FeatureViews(X).matrices) == ["given"]
    assert list(FeatureViews(sparse.csr_matrix(X)).matrices) == ["given"]
    assert sparse.issparse(FeatureViews(sparse.csr_matrix(X)).matrices["given"])


def test_text_becomes_indicators_and_missing_values_are_filled() -> None:
    frame = pd.DataFrame(
        {"size": [1.0, 2.0, np.nan, 9.0], "colour": ["red", None, "blue", "red"], "new": [True, False, True, True]}
    )
    views = FeatureViews(frame)
    standard = views.matrices["standard"]
    assert standard.shape == (4, 2 + 3)  # "", blue, red
    assert np.isfinite(standard).all()
    np.testing.assert_allclose(((standard[0] - standard[3])[2:] ** 2).sum(), 0)
    np.testing.assert_allclose(((standard[0] - standard[2])[2:] ** 2).sum(), 1)  # another category: distance 1
    new = views.transform(pd.DataFrame({"size": [2.0], "colour": ["green"], "new": [False]}))["standard"]
    assert (new[0, 2:] == 0).all()  # an unknown category
    np.testing.assert_allclose(views.transform(frame)["standard"], standard)


def test_a_missing_number_is_the_median_of_its_column() -> None:
    views = FeatureViews(np.array([[1.0, 0.5], [2.0, 0.25], [np.nan, 0.75], [9.0, 0.0]]))
    filled = views.transform(np.array([[2.0, 0.5], [np.nan, 0.5]]))
    for matrix in filled.values():
        np.testing.assert_allclose(matrix[0], matrix[1])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"X has shape \(3,\); expected \(points, features\)"),
        (np.zeros((3, 0)), r"X has shape \(3, 0\); expected \(points, features\)"),
        (np.array([[1.0, np.inf]]), "X: row 0, column 1 is infinite; expected finite numbers"),
        (sparse.csr_matrix(np.array([[1.0, np.nan]])), "X has values that are not finite; expected finite numbers"),
    ],
)
def test_invalid_features_are_rejected(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureViews(X)


def test_new_points_need_the_same_columns() -> None:
    with pytest.raises(ValueError, match="X has 2 columns; expected 3"):
        FeatureViews(np.eye(3)).transform(np.zeros((1, 2)))
