from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from entourage.label.ensemble.mixture import MAX_COMPONENTS, fit_mixture


def stripes(n: int = 400, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that differ in a direction of small variance."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    X = rng.normal(size=(n, d)) * [2.0, *([1.0] * (d - 1))]
    X[:, 1] += 4 * truth
    return X, truth


def one_hot(codes: np.ndarray, m: int) -> np.ndarray:
    return np.eye(m)[codes]


def test_unlabelled_points_correct_a_start_that_is_often_wrong() -> None:
    X, truth = stripes()
    rng = np.random.default_rng(1)
    start = one_hot(np.where(rng.random(400) < 0.3, 1 - truth, truth), 2) * 0.6 + 0.2
    codes = np.where(np.arange(400) < 4, truth, -1)
    found = fit_mixture(X, start, codes, 0.2).predict_proba(X)
    assert (found.argmax(axis=1) == truth).mean() > 0.97
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_with_all_labels_it_is_linear_discriminant_analysis() -> None:
    X, truth = stripes()
    found = fit_mixture(X, one_hot(truth, 2), truth, 0.5).predict_proba(X)
    covariance = sum(np.cov(X[truth == c].T, bias=True) for c in (0, 1)) / 2
    covariance = 0.5 * covariance + 0.5 * np.trace(covariance) / 4 * np.eye(4)
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(X, truth)
    means = reference.means_
    log_odds = (X - means.mean(axis=0)) @ np.linalg.solve(covariance, means[1] - means[0])
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-log_odds)), atol=1e-9)


@pytest.mark.parametrize("d", [3, MAX_COMPONENTS + 20])
def test_a_class_without_probability_stays_empty_and_new_points_are_labelled(d: int) -> None:
    X, truth = stripes(d=d)
    start = np.concatenate([one_hot(truth, 2), np.zeros((400, 1))], axis=1)
    start[5] = 0  # a point without an answer
    mixture = fit_mixture(X, start, np.where(np.arange(400) < 10, truth, -1), 0.5)
    new, new_truth = stripes(d=d, seed=2)
    found = mixture.predict_proba(new)
    assert (found[:, 2] == 0).all()
    assert (found.argmax(axis=1) == new_truth).mean() > 0.9


def test_the_result_does_not_depend_on_an_offset_of_the_features() -> None:
    X, truth = stripes()
    codes = np.where(np.arange(400) < 10, truth, -1)
    plain = fit_mixture(X, one_hot(truth, 2), codes, 0.5).predict_proba(X)
    moved = fit_mixture(X + 1000, one_hot(truth, 2), codes, 0.5).predict_proba(X + 1000)
    np.testing.assert_allclose(moved, plain, atol=1e-6)


def test_constant_features_leave_the_classes_equally_probable() -> None:
    found = fit_mixture(np.ones((20, 3)), np.full((20, 2), 0.5), np.array([0, 1] + [-1] * 18), 0.5)
    np.testing.assert_allclose(found.predict_proba(np.ones((1, 3))), 0.5)
