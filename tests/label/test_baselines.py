"""The linear baselines against their closed forms and scikit-learn."""

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.semi_supervised import LabelSpreading as ReferenceSpreading

from entourage.label import LabelHarmonic, LabelSpreading, PoissonLearning
from entourage.label.base import GraphLabeller

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def distributions(graph: Floats | sparse.csr_matrix, y: Ints, labeller: GraphLabeller) -> Floats:
    return labeller.set_params(affinity="precomputed", tol=1e-13).fit(graph, y).label_distributions_


def one_hot(y: Ints) -> Floats:
    return (y[:, None] == np.arange(y.max() + 1)).astype(float)


def normalize_rows(x: Floats) -> Floats:
    return x / x.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array], ids=["dense", "matrix", "array"])
def test_harmonic_solves_for_the_unlabelled_block(graph: Floats, few_labels: Ints, kind: Any) -> None:
    u, l = few_labels < 0, few_labels >= 0  # noqa: E741 - as in the paper
    expected = one_hot(few_labels)
    laplacian = np.diag(graph.sum(axis=1)) - graph
    expected[u] = np.linalg.solve(laplacian[np.ix_(u, u)], graph[np.ix_(u, l)] @ expected[l])
    np.testing.assert_allclose(distributions(kind(graph), few_labels, LabelHarmonic()), expected, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.2, 0.9, 0.99])
def test_spreading_equals_its_closed_form_and_scikit_learn(graph: Floats, few_labels: Ints, alpha: float) -> None:
    root = np.sqrt(graph.sum(axis=1))
    smooth = graph / np.outer(root, root)
    closed = (1 - alpha) * np.linalg.solve(np.eye(24) - alpha * smooth, one_hot(few_labels))
    found = distributions(graph, few_labels, LabelSpreading(alpha=alpha))
    np.testing.assert_allclose(found, normalize_rows(closed), atol=1e-10)
    reference = ReferenceSpreading(kernel=lambda a, b: graph.copy(), alpha=alpha, max_iter=100_000, tol=1e-14)
    reference.fit(np.zeros((24, 1)), few_labels)
    np.testing.assert_allclose(found, reference.label_distributions_, atol=1e-8)


def test_poisson_equals_the_pseudo_inverse_with_degree_weighted_zero_mean(graph: Floats, few_labels: Ints) -> None:
    degree = graph.sum(axis=1)
    labelled = few_labels >= 0
    y = one_hot(few_labels)
    sources = np.where(labelled[:, None], y - y[labelled].mean(axis=0), 0)
    u = np.linalg.pinv(np.diag(degree) - graph) @ sources
    u = u - degree @ u / degree.sum()
    expected = normalize_rows(np.exp(u / np.sqrt(np.mean(u**2))))
    np.testing.assert_allclose(distributions(graph, few_labels, PoissonLearning()), expected, atol=1e-9)


@pytest.mark.parametrize(
    "labeller", [LabelHarmonic(), LabelSpreading(), PoissonLearning()], ids=lambda a: type(a).__name__
)
def test_a_component_with_labels_of_one_class_gets_that_class(
    two_components: tuple[sparse.csr_matrix, Ints], labeller: GraphLabeller
) -> None:
    w, y = two_components
    x = distributions(w, y, labeller)
    np.testing.assert_allclose(x[5:], np.tile([0.0, 1.0], (5, 1)), atol=1e-12)
    alone = distributions(w[:5, :5], y[:5], type(labeller)())
    np.testing.assert_allclose(x[:5], alone, atol=1e-9)  # components are independent


def test_spreading_may_change_a_given_label_and_harmonic_does_not() -> None:
    w = np.ones((6, 6)) - np.eye(6)
    y = np.array([0, 0, 0, 0, 0, 1])
    assert LabelSpreading(affinity="precomputed").fit(w, y).transduction_[5] == 0
    assert LabelHarmonic(affinity="precomputed").fit(w, y).transduction_[5] == 1


@pytest.mark.parametrize("alpha", [0, 1, -0.5, 2, float("nan")])
def test_alpha_must_lie_between_0_and_1(graph: Floats, few_labels: Ints, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha is .*; expected a number between 0 and 1"):
        LabelSpreading(affinity="precomputed", alpha=alpha).fit(graph, few_labels)


@pytest.mark.parametrize("labeller", [LabelHarmonic, LabelSpreading, PoissonLearning])
def test_too_few_steps_warn_at_the_call_of_fit(graph: Floats, few_labels: Ints, labeller: type[GraphLabeller]) -> None:
    with pytest.warns(ConvergenceWarning, match="not solved to 1e-06 in 2 steps") as caught:
        labeller(affinity="precomputed", max_iter=2).fit(graph, few_labels)
    assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert labeller(affinity="precomputed", max_iter=2, tol=None).fit(graph, few_labels).n_iter_ == 2
        assert 2 < labeller(affinity="precomputed").fit(graph, few_labels).n_iter_ < 100


def test_poisson_converges_with_a_nearly_disconnected_graph() -> None:
    block = np.ones((4, 4)) - np.eye(4)
    w = np.kron(np.eye(2), block)
    w[3, 4] = w[4, 3] = 1e-20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = PoissonLearning(affinity="precomputed").fit(w, [0, 0, -1, -1, 1, -1, -1, -1])
    assert found.transduction_.tolist() == [0] * 4 + [1] * 4


def test_poisson_learning_does_not_change_a_graph_with_negligible_edges() -> None:
    weights = np.zeros((4, 4), dtype=np.float32)
    weights[[0, 1, 2, 3], [1, 0, 3, 2]] = 1
    weights[1, 2] = weights[2, 1] = 1e-20
    graph = sparse.csr_matrix(weights)
    PoissonLearning(affinity="precomputed").fit_graph(graph, np.array([0, -1, 1, -1]))
    np.testing.assert_array_equal(graph.toarray(), weights)
