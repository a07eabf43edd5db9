"""LinearSVMLabeller against scikit-learn's LinearSVC."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from entourage.label import LinearSVMLabeller

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@pytest.mark.parametrize("classes", [2, 4])
def test_labels_equal_those_of_a_linear_svc(classes: int) -> None:
    X, truth = make_classification(
        120, 8, n_informative=6, n_redundant=0, n_classes=classes, n_clusters_per_class=1, random_state=0
    )
    y = np.where(np.arange(120) % 4 == 0, truth, -1)
    known = y >= 0
    reference = LinearSVC(random_state=0).fit(X[known], y[known])
    found = LinearSVMLabeller().fit(X, y)
    np.testing.assert_array_equal(found.transduction_[~known], reference.predict(X[~known]))
    np.testing.assert_array_equal(found.transduction_[known], y[known])
    np.testing.assert_array_equal(found.predict(X), reference.predict(X))
    margins = reference.decision_function(X)
    margins = np.stack([-margins, margins], axis=1) if classes == 2 else margins
    np.testing.assert_allclose(found.predict_proba(X), softmax(margins, axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.label_distributions_[~known], softmax(margins, axis=1)[~known], rtol=1e-5)
    np.testing.assert_array_equal(found.confidence_[known], 1)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_the_features_of_a_precomputed_graph_are_its_similarities(graph: Floats, few_labels: Ints, kind: type) -> None:
    known = few_labels >= 0
    reference = LinearSVC(random_state=0).fit(graph[known], few_labels[known])
    found = LinearSVMLabeller(affinity="precomputed").fit(kind(graph), few_labels)
    np.testing.assert_array_equal(found.transduction_[~known], reference.predict(graph[~known]))
    np.testing.assert_array_equal(found.predict(kind(graph[:5])), reference.predict(graph[:5]))


def test_every_point_is_reached(graph: Floats, few_labels: Ints) -> None:
    graph[3], graph[:, 3] = 0, 0
    found = LinearSVMLabeller(affinity="precomputed").fit(graph, few_labels)
    assert found.unreached_.tolist() == []
    assert found.transduction_[3] in (0, 1, 2)


def test_the_features_are_not_stored() -> None:
    found = LinearSVMLabeller().fit(np.arange(6.0)[:, None], [0, 0, -1, -1, 1, 1])
    assert not any(isinstance(value, np.ndarray) and value.shape == (6, 1) for value in vars(found).values())


def test_one_label_per_class_does_not_warn() -> None:
    X = np.eye(30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = LinearSVMLabeller().fit(X, np.where(np.arange(30) < 25, np.arange(30), -1))
    assert found.transduction_[:25].tolist() == list(range(25))
