from __future__ import annotations

import numpy as np
import pytest

from entourage.label.ensemble.stacking import (
    best_sharpness,
    calibration_error,
    confidence_exponent,
    coverage_table,
    sharpen,
    stacking_weights,
    standard_error,
)


def one_hot(codes: np.ndarray, m: int, certainty: float) -> np.ndarray:
    x = np.full((len(codes), m), (1 - certainty) / (m - 1))
    x[np.arange(len(codes)), codes] = certainty
    return x


def test_the_member_that_explains_the_hidden_labels_gets_most_of_the_weight() -> None:
    codes = np.arange(60) % 3
    hidden = np.stack([one_hot(codes, 3, 0.8), one_hot((codes + 1) % 3, 3, 0.8), np.full((60, 3), 1 / 3)])
    weights = stacking_weights(hidden, codes, np.ones(3))
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.9
    assert weights[2] > weights[1]


def test_without_hidden_labels_the_weights_are_the_prior() -> None:
    weights = stacking_weights(np.zeros((2, 0, 3)), np.zeros(0, dtype=np.int64), np.array([3.0, 1.0]))
    np.testing.assert_allclose(weights, [0.75, 0.25])


def test_the_weights_maximise_the_posterior() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.dirichlet(np.ones(3), size=(2, 40))
    codes = rng.integers(3, size=40)
    found = stacking_weights(hidden, codes, np.ones(2), n_iter=2000)
    likelihood = 0.98 * hidden[:, np.arange(40), codes] + 0.02 / 3

    def posterior(w: float) -> float:
        weights = np.array([w, 1 - w])
        return float(np.log(weights @ likelihood).sum() + 2.5 * np.log(weights).sum())

    assert max(np.linspace(0.001, 0.999, 999), key=posterior) == pytest.approx(found[0], abs=2e-3)


def test_distributions_that_are_too_flat_are_sharpened_and_certain_ones_flattened() -> None:
    codes = np.arange(200) % 2
    flat = one_hot(codes, 2, 0.6)
    assert best_sharpness(flat, codes) > 3  # all are right
    wrong = np.where(np.arange(200) < 80, 1 - codes, codes)  # 60 % are right
    assert best_sharpness(one_hot(wrong, 2, 0.99), codes) < 0.5
    assert best_sharpness(flat[:0], codes[:0]) == 1


@pytest.mark.parametrize("certainty", [0.4, 0.7, 0.99])
def test_distributions_get_the_mean_confidence(certainty: float) -> None:
    x = one_hot(np.arange(30) % 3, 3, certainty)
    x[0] = 0  # no answer
    exponent = confidence_exponent(x, 0.6)
    assert sharpen(x, exponent)[1:].max(axis=1).mean() == pytest.approx(1 / 3 + 0.6 * 2 / 3, abs=1e-3)


def test_sharpening_does_not_underflow() -> None:
    np.testing.assert_allclose(sharpen(np.full((1, 1000), 1e-3), 100.0).sum(), 1)


def test_sharpening_keeps_order_and_rows_of_zeros() -> None:
    x = np.array([[0.2, 0.8], [0.0, 0.0]])
    np.testing.assert_allclose(sharpen(x, 2.0), [[0.04 / 0.68, 0.64 / 0.68], [0, 0]])


def test_coverage_is_the_mean_confidence_of_the_surest() -> None:
    rows = coverage_table(np.array([0.5, 1.0, 0.9, 0.8]), (0.5, 1.0))
    assert [(row.fraction, row.confidence) for row in rows] == [(0.5, 0.9), (1.0, 0.5)]
    assert [row.accuracy for row in rows] == pytest.approx([0.95, 0.8])
    assert coverage_table(np.zeros(0)) == []


def test_standard_errors_and_calibration_errors_have_their_closed_forms() -> None:
    assert standard_error(0.8, 16) == pytest.approx(0.1)
    assert standard_error(0.5, 0) == float("inf")
    confidence = np.array([0.9, 0.9, 0.9, 0.9])
    assert calibration_error(np.array([True, True, True, False]), confidence) == pytest.approx(0.15)
