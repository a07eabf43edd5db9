"""Points that no label reaches, and ties, for all labellers with a graph."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from tests.label.conftest import Data, Method, assert_sound

from entourage.label import GraphTransduction


def test_isolated_points_keep_their_label_or_prior(graph_method: Method, three: Data) -> None:
    w = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)
    w[[3, 7], :] = w[:, [3, 7]] = 0
    y = np.array([0, -1, -1, -1, 1, -1, -1, 1, 2, -1, -1, -1])
    with pytest.warns(UserWarning, match="no label reaches 1 of 12 points"):
        found = graph_method(affinity="precomputed").fit(w, y)
    assert_sound(found, 12)
    assert found.unreached_.tolist() == [3]
    assert found.transduction_.tolist() == [0, 0, 0, -1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert found.confidence_[7] == pytest.approx(1)


@pytest.mark.parametrize("text", [False, True])
def test_a_component_without_labels_stays_undecided(graph_method: Method, lost: Data, text: bool) -> None:
    y = np.array([str(label) for label in lost.y]) if text else lost.y
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = graph_method().fit(lost.X, y)
    assert [str(w.message) for w in caught] == ["no label reaches 20 of 80 points: they stay undecided"]
    assert caught[0].filename == __file__
    assert_sound(found, 80)
    assert found.unreached_.tolist() == list(range(60, 80))
    np.testing.assert_allclose(found.label_distributions_[60:], 1 / 3, rtol=1e-6)
    np.testing.assert_array_equal(found.confidence_[60:], 0)
    unknown = "" if text else -1
    assert found.transduction_[60:].tolist() == [unknown] * 20
    assert found.transduction_[:60].tolist() == (lost.truth[:60].astype(str) if text else lost.truth[:60]).tolist()
    queries = np.array([[60.0, 60.1], [6.1, 0.0], [0.0, 6.1]])
    assert found.predict(queries).tolist() == ([unknown, "1", "2"] if text else [-1, 1, 2])
    np.testing.assert_allclose(found.predict_proba(queries)[0], 1 / 3)
    assert np.isfinite(found.predict_proba(queries)).all()


@pytest.mark.filterwarnings("ignore:no label reaches", "ignore:not solved", "ignore:.* end in a tie")
def test_weak_edges_give_the_right_label_or_none(graph_method: Method) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 2)) + np.repeat([[0, 0], [100, 0], [400, 0]], [20, 20, 8], axis=0)
    y = np.full(48, -1)
    y[[0, 20]] = 0, 1
    found = graph_method(n_neighbors=10).fit(X, y)
    # The last group has weak edges to the second group only: it gets the label of that group, or none.
    assert set(found.transduction_[40:]) <= {1, -1}
    assert set(np.flatnonzero(found.transduction_ == -1)) == set(found.undecided_)


@pytest.mark.filterwarnings("ignore:no label reaches", "ignore:2 of 6 points end in a tie")
def test_ties_stay_undecided(graph_method: Method) -> None:
    block = np.ones((3, 3)) - np.eye(3)
    w = sparse.csr_matrix(sparse.block_diag([block, block]))
    prior = np.ones((6, 2))
    prior[3] = 0.2, 0.8  # the game spreads this prior to points 4 and 5, its baselines do not
    found = graph_method(affinity="precomputed").fit(w, [0, 1, 0, -1, -1, -1], prior=prior)
    assert found.transduction_[3] == 1
    assert set(found.transduction_[4:]) <= ({1} if graph_method is GraphTransduction else {1, -1})
    assert set(np.flatnonzero(found.transduction_ == -1)) == set(found.undecided_)


@pytest.mark.parametrize("text", [False, True])
def test_ties_of_new_points_stay_undecided(graph_method: Method, text: bool) -> None:
    block = np.ones((3, 3)) - np.eye(3)
    w = sparse.csr_matrix(sparse.block_diag([block, block]))
    y = np.array([0, 0, 0, 1, 1, 1])
    found = graph_method(affinity="precomputed").fit(w, y.astype(str) if text else y)
    queries = np.array([[1.0, 0, 0, 1, 0, 0], [1e-20, 0, 0, 2e-20, 0, 0], [3, 3, 0, 0, 1, 0], [0] * 6])
    np.testing.assert_allclose(found.predict_proba(queries)[[0, 3]], 0.5, atol=1e-6)
    assert found.predict(queries).tolist() == (["", "1", "0", ""] if text else [-1, 1, 0, -1])


def test_zero_vectors_are_unreached_with_cosine_affinity(graph_method: Method) -> None:
    X = np.abs(np.random.default_rng(0).normal(size=(20, 3)))
    X[10:14] = 0  # fewer points than neighbours
    y = np.where(np.arange(20) < 6, np.arange(20) % 2, -1)
    with pytest.warns(UserWarning, match="no label reaches 4 of 20 points"):
        found = graph_method(affinity="cosine").fit(X, y)
    assert found.unreached_.tolist() == [10, 11, 12, 13]
    assert (found.confidence_[10:14] == 0).all()
    assert found.predict(X[9:12]).tolist()[1:] == [-1, -1]


def test_clamped_weights_are_not_edges(graph_method: Method) -> None:
    block = np.ones((4, 4)) - np.eye(4)
    w = np.block([[block, -0.1 * np.ones((4, 4))], [-0.1 * np.ones((4, 4)), block]])
    with pytest.warns(UserWarning, match="no label reaches 4 of 8 points"):
        found = graph_method(affinity="precomputed", negatives="clamp").fit(w, [0, 1, 1] + [-1] * 5)
    assert found.unreached_.tolist() == [4, 5, 6, 7]
    assert (found.graph_.data > 0).all()
