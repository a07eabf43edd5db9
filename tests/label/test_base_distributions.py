from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from entourage.label.base import apply_prior, has_unique_maximum, to_distributions


def test_rows_sum_to_1_and_zero_rows_become_the_fallback() -> None:
    votes = np.array([[1.0, 3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(to_distributions(votes), [[0.25, 0.75], [0, 0]])
    np.testing.assert_array_equal(to_distributions(votes, np.array([0.4, 0.6])), [[0.25, 0.75], [0.4, 0.6]])


def test_a_prior_multiplies_unlabelled_rows_and_replaces_zero_rows() -> None:
    initial = np.array([[1.0, 0.0], [0.8, 0.2], [1.0, 0.0]])
    problem = SimpleNamespace(targets=SimpleNamespace(labelled=np.array([True, False, False])), initial=initial)
    found = apply_prior(np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]), problem)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.8, 0.2], [1.0, 0.0]])


def test_a_tie_has_no_unique_maximum() -> None:
    assert has_unique_maximum(np.array([[0.5, 0.5, 0.0], [0.5, 0.4, 0.1], [0.5, 0.5 + 1e-9, 0.0]])).tolist() == [
        False,
        True,
        False,
    ]
    assert has_unique_maximum(np.array([[1.0], [0.0]])).tolist() == [True, True]
