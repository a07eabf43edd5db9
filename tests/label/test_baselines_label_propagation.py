"""Label propagation against the harmonic solution it converges to, and against scikit-learn."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.semi_supervised import LabelPropagation as ReferencePropagation

from entourage.label import LabelHarmonic, LabelPropagation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def test_the_limit_equals_the_harmonic_solution_and_scikit_learn(graph: Floats, few_labels: Ints) -> None:
    found = LabelPropagation(affinity="precomputed", tol=1e-14, max_iter=100_000).fit(graph, few_labels)
    harmonic = LabelHarmonic(affinity="precomputed", tol=1e-13).fit(graph, few_labels)
    np.testing.assert_allclose(found.label_distributions_, harmonic.label_distributions_, atol=1e-9)
    reference = ReferencePropagation(kernel=lambda a, b: graph.copy(), max_iter=100_000, tol=1e-14)
    reference.fit(np.zeros((24, 1)), few_labels)
    np.testing.assert_allclose(found.label_distributions_, reference.label_distributions_, atol=1e-9)


@pytest.mark.parametrize("n_iter", [1, 2, 5])
def test_every_iteration_is_the_mean_of_the_neighbours(graph: Floats, few_labels: Ints, n_iter: int) -> None:
    y = (few_labels[:, None] == np.arange(3)).astype(float)
    expected = y
    for _ in range(n_iter):
        mean = graph @ expected
        total = mean.sum(axis=1, keepdims=True)
        expected = np.where(few_labels[:, None] >= 0, y, mean / np.where(total > 0, total, 1))
    expected = np.where(expected.any(axis=1, keepdims=True), expected, 1 / 3)  # not reached yet
    found = LabelPropagation(affinity="precomputed", tol=None, max_iter=n_iter).fit(graph, few_labels)
    assert found.n_iter_ == n_iter
    np.testing.assert_allclose(found.label_distributions_, expected, atol=1e-12)


def test_a_component_with_labels_of_one_class_gets_that_class(two_components: tuple[sparse.csr_matrix, Ints]) -> None:
    x = LabelPropagation(affinity="precomputed").fit(*two_components).label_distributions_
    np.testing.assert_allclose(x[5:], np.tile([0.0, 1.0], (5, 1)), atol=1e-12)


def test_too_few_iterations_warn_at_the_call_of_fit(graph: Floats, few_labels: Ints) -> None:
    with pytest.warns(ConvergenceWarning, match="labels did not converge in 2 rounds") as caught:
        LabelPropagation(affinity="precomputed", max_iter=2).fit(graph, few_labels)
    assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = LabelPropagation(affinity="precomputed").fit(graph, few_labels)
    assert 2 < found.n_iter_ < 1000
