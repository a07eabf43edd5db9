"""The game as a scikit-learn classifier: presets, confidence, consistency, and real data."""

import doctest
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from entourage.game import neighbors
from entourage.label import GraphTransduction, transduction
from entourage.label.transduction import order_by_support, random_walk_step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def test_docstring_example_runs() -> None:
    results = doctest.testmod(transduction)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("name", ["default", "thesis", "original"])
def test_preset_arguments_can_be_overridden(name: str) -> None:
    plain, changed = GraphTransduction.from_preset(name), GraphTransduction.from_preset(name, max_iter=7, device="cpu")
    assert changed.get_params() == {**plain.get_params(), "max_iter": 7, "device": "cpu"}


def test_unknown_preset_or_argument_raises() -> None:
    with pytest.raises(ValueError, match="preset 'fast' is unknown; expected one of default, thesis, original"):
        GraphTransduction.from_preset("fast")
    with pytest.raises(TypeError, match="neighbours"):
        GraphTransduction.from_preset("thesis", neighbours=3)


@pytest.mark.parametrize(("name", "edges", "rounds"), [("default", 6, None), ("thesis", 59, None), ("original", 6, 25)])
def test_presets_build_the_documented_graph_and_iterations(name: str, edges: int, rounds: int | None) -> None:
    X = np.concatenate([np.random.default_rng(0).normal(size=(30, 2)) + centre for centre in (0, 8)])
    y = np.full(60, -1)
    y[[0, 30]] = 0, 1
    found = GraphTransduction.from_preset(name).fit(X, y)
    assert np.diff(found.graph_.indptr).min() == edges
    assert (found.transduction_ == np.repeat([0, 1], 30)).all()
    assert rounds is None or found.n_iter_ == rounds
    unit = np.allclose(found.graph_.sum(axis=1).max(), 1, atol=0.5)
    assert unit == (name == "default")


def test_consistency_never_decreases_and_has_one_value_per_iteration(graph: Floats, few_labels: Ints) -> None:
    found = GraphTransduction(affinity="precomputed").fit(graph, few_labels)
    assert found.consistency_.shape == (found.n_iter_ + 1,)
    assert (np.diff(found.consistency_) >= -1e-12).all()
    final = found.label_distributions_
    assert found.consistency_[-1] == pytest.approx(float((final * (graph @ final)).sum()), rel=1e-6)


def test_labelled_points_keep_their_labels_exactly(graph: Floats, few_labels: Ints) -> None:
    known = few_labels >= 0
    found = GraphTransduction(affinity="precomputed").fit(graph, few_labels)
    np.testing.assert_array_equal(found.label_distributions_[known], np.eye(3)[few_labels[known]])


def line(*extra: float) -> tuple[Floats, Ints]:
    """Two clusters on a line, around 0 and 10, the first point of each labelled, and further points after them."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=20), 10 + rng.normal(size=20), extra])[:, None]
    y = np.full(len(X), -1)
    y[[0, 20]] = 0, 1
    return X, y


def test_confidence_is_lower_between_two_clusters_than_inside_one() -> None:
    X, y = line(5.0, 0.1, 10.1)
    found = GraphTransduction(n_neighbors=None, affinity="gaussian").fit(X, y)
    assert ((found.confidence_ >= 0) & (found.confidence_ <= 1)).all()
    between, left, right = found.confidence_[-3:]
    assert between < 0.9 < min(left, right)
    assert found.transduction_[-2:].tolist() == [0, 1]


def test_agreement_is_a_two_step_random_walk(graph: Floats, few_labels: Ints) -> None:
    found = GraphTransduction(affinity="precomputed").fit(graph, few_labels)
    step = graph / graph.sum(axis=1, keepdims=True)
    expected = (step @ step @ found.label_distributions_)[np.arange(24), found.transduction_]
    np.testing.assert_allclose(found.agreement_, expected, rtol=1e-5)
    np.testing.assert_allclose(np.sort(found.confidence_), np.sort(expected), rtol=1e-5)
    given = few_labels >= 0
    np.testing.assert_allclose(found.confidence_[given], expected[given], rtol=1e-5)
    without = GraphTransduction(affinity="precomputed", walk_steps=0).fit(graph, few_labels)
    np.testing.assert_array_equal(without.confidence_, without.agreement_)


def test_confidences_are_ordered_by_agreement_and_support() -> None:
    graph = sparse.csr_matrix(np.eye(5))  # a walk stays where it is
    agreement = np.array([0.5, 0.9, 0.9, 0.7, 0.8])
    reached = np.array([[9.0, 0.0], [4.0, 1.0], [4.0, 0.0], [4.0, 4.0], [0.0, 0.0]])
    codes = np.array([0, 0, 0, 0, 1])
    given = np.array([0, -1, -1, -1, -1])
    found = order_by_support(graph, agreement, reached, codes, given)
    # No label reaches the last point; two classes reach the one before it.
    np.testing.assert_allclose(found, [0.5, 0.9, 0.9, 0.8, 0.7])
    swapped = order_by_support(graph, np.array([0.5, 0.95, 0.9, 0.7, 0.8]), reached, codes, given)
    np.testing.assert_allclose(swapped, [0.5, 0.9, 0.95, 0.8, 0.7])  # another class reaches the second point
    np.testing.assert_array_equal(
        order_by_support(graph, agreement, reached, codes, np.zeros(5, dtype=bool)), agreement
    )


def test_support_is_averaged_over_the_neighbourhood() -> None:
    chain = sparse.csr_matrix(np.eye(6, k=1) + np.eye(6, k=-1) + np.eye(6))
    reached = np.array([[8.0, 0.1], [8.0, 0.1], [8.0, 0.1], [0.2, 0.1], [0.2, 0.1], [8.0, 0.1]])
    given = np.array([-1, -1, 0, -1, -1, -1])
    found = order_by_support(chain, np.linspace(0.8, 0.81, 6), reached, np.zeros(6, dtype=int), given)
    assert np.argsort(found[[0, 1, 3, 4, 5]])[-2:].tolist() == [1, 0]  # the last point has support, its neighbours none


def test_the_order_of_the_cells_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(900) % 3
    X = rng.normal(size=(900, 4)).astype(np.float32) + 4 * truth[:, None]
    y = np.where(np.arange(900) < 9, truth, -1)
    monkeypatch.setitem(neighbors.EXACT_UP_TO, "cpu", 100)
    found = GraphTransduction(device="cpu").fit(X, y)
    assert found._neighbor_graph is not None
    order = found._neighbor_graph.order
    assert order is not None
    assert np.sort(order).tolist() == list(range(900))
    same = GraphTransduction(affinity="precomputed", device="cpu").fit(found.graph_, y)
    np.testing.assert_array_equal(found.transduction_, same.transduction_)
    np.testing.assert_allclose(found.label_distributions_, same.label_distributions_, atol=1e-4)
    assert np.abs(found.confidence_ - same.confidence_).mean() < 2e-3


def test_the_confidence_of_digits_ranks_errors_last() -> None:
    X, truth = load_digits(return_X_y=True)
    X, truth = X[:600], truth[:600]
    y = np.full(600, -1)
    y[:30] = truth[:30]
    found = GraphTransduction().fit(X, y)
    right = (found.transduction_ == truth)[30:]
    area, plain = (roc_auc_score(right, score[30:]) for score in (found.confidence_, found.agreement_))
    assert area > plain + 0.02


def test_a_random_walk_step_keeps_rows_of_isolated_points() -> None:
    w = sparse.csr_matrix(np.array([[0, 1, 3], [1, 0, 0], [3, 0, 0]]) @ np.eye(3, 4))
    w.resize((4, 4))
    x = np.array([[1.0, 0], [0, 1], [0.5, 0.5], [0.2, 0.8]])
    np.testing.assert_allclose(random_walk_step(w, x), [[0.375, 0.625], [1, 0], [1, 0], [0.2, 0.8]])


def test_predictions_average_over_neighbours_of_neighbours(graph: Floats, few_labels: Ints) -> None:
    found = GraphTransduction(affinity="precomputed").fit(graph, few_labels)
    similarities = np.random.default_rng(3).random((5, 24))
    votes = similarities @ random_walk_step(found.graph_, found.label_distributions_)
    np.testing.assert_allclose(found.predict_proba(similarities), votes / votes.sum(axis=1, keepdims=True), rtol=1e-5)


def test_class_similarity_changes_a_label() -> None:
    w = np.zeros((4, 4))
    w[3, :3] = w[:3, 3] = 0.4, 0.3, 0.5
    y = [0, 1, 2, -1]
    class_similarity = [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert GraphTransduction(affinity="precomputed").fit(w, y).transduction_[3] == 2
    assert GraphTransduction(affinity="precomputed", class_similarity=class_similarity).fit(w, y).transduction_[3] == 0
    with pytest.raises(ValueError, match=r"class_similarity has shape \(2, 2\); expected \(3, 3\)"):
        GraphTransduction(affinity="precomputed", class_similarity=np.eye(2)).fit(w, y)


def test_too_few_iterations_warn_at_the_call_of_fit(graph: Floats, few_labels: Ints) -> None:
    with pytest.warns(ConvergenceWarning, match="the game did not converge in 3 rounds") as caught:
        GraphTransduction(affinity="precomputed", max_iter=3).fit(graph, few_labels)
    assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GraphTransduction(affinity="precomputed", max_iter=3, tol=None).fit(graph, few_labels).n_iter_ == 3


def test_one_label_a_class_suffices_for_most_digits() -> None:
    X, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    y = np.full(len(X), -1)
    for digit in range(10):
        y[rng.choice(np.flatnonzero(truth == digit))] = digit
    found = GraphTransduction().fit(X, y)
    unlabelled = y < 0
    right = found.transduction_ == truth
    assert right[unlabelled].mean() > 0.75
    # Confident labels must be right more often than the others.
    confident = found.confidence_ >= np.median(found.confidence_)
    assert right[unlabelled & confident].mean() > right[unlabelled & ~confident].mean()
    assert (np.diff(found.consistency_) >= -1e-6 * found.consistency_.max()).all()
    assert np.diff(found.graph_.indptr).min() >= math.floor(math.log2(len(X))) + 1


def test_a_tie_warns_and_stays_undecided() -> None:
    with pytest.warns(UserWarning, match="1 of 3 points end in a tie"):
        found = GraphTransduction().fit([[0.0], [1.0], [2.0]], [0, -1, 1])
    assert found.transduction_.tolist() == [0, -1, 1]
    assert found.undecided_.tolist() == [1]
    assert found.unreached_.tolist() == []
    assert found.confidence_[1] == 0


def test_missing_values_of_pandas_are_unlabelled() -> None:
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    frame = pd.DataFrame({"x": X[:, 0]})
    for y in (
        pd.Series(["a", None, None, None, None, "b"]),
        pd.Series(["a", None, None, None, None, "b"], dtype="string"),
        pd.Series(["a", None, None, None, None, "b"], dtype="category"),
        pd.Series([7, None, None, None, None, 9], dtype="Int64"),
        pd.Series([7, None, None, None, None, 9]),
    ):
        model = GraphTransduction(n_neighbors=2).fit(frame, y)
        assert model.transduction_.tolist() == [y[0]] * 3 + [y[5]] * 3
        assert model.score(frame, y) == 1


def test_class_similarity_applies_to_predictions() -> None:
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    swapped = GraphTransduction(n_neighbors=1, class_similarity=[[0, 1], [1, 0]]).fit(X, [0, -1, 1, -1])
    assert swapped.transduction_.tolist() == [0, 1, 1, 0]  # each neighbour contributes to the other label
    assert swapped.predict([[0.02]]).tolist() == [0]


def test_all_weights_of_a_dense_graph_are_shifted() -> None:
    w = np.array([[0, -0.5, 0.5, 0], [-0.5, 0, 0, 0.5], [0.5, 0, 0, -0.5], [0, 0.5, -0.5, 0]])
    graph = GraphTransduction(affinity="precomputed", negatives="shift").fit(w, [0, 1, -1, -1]).graph_
    np.testing.assert_allclose(graph.toarray(), w + 0.5 - 0.5 * np.eye(4))


def test_empirical_class_priors_are_the_frequencies_of_given_labels() -> None:
    # Overlapping blobs of 60 and 30 points: with equal class priors, the classes should be closer to half of the points
    # each than without.
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(0, 1, (60, 2)), generator.normal(2.2, 1, (30, 2))])
    y = np.full(90, -1)
    y[0], y[60] = 0, 1
    plain = GraphTransduction(n_neighbors=8, walk_steps=0).fit(X, y)
    balanced = GraphTransduction(n_neighbors=8, walk_steps=0, class_priors="empirical").fit(X, y)
    explicit = GraphTransduction(n_neighbors=8, walk_steps=0, class_priors=[0.5, 0.5]).fit(X, y)
    gap = abs(np.mean(plain.transduction_ == 1) - 0.5)
    assert abs(np.mean(balanced.transduction_ == 1) - 0.5) < gap
    np.testing.assert_array_equal(balanced.transduction_, explicit.transduction_)
    with pytest.raises(ValueError, match="class_priors is 'fair'; expected 'empirical', an array, or None"):
        GraphTransduction(class_priors="fair").fit(X, y)


def test_walk_steps_improve_the_accuracy_on_digits() -> None:
    X, truth = load_digits(return_X_y=True)
    right: dict[int, list[float]] = {0: [], 30: []}
    for seed in range(200, 206):
        y = np.full(len(truth), -1)
        for label in range(10):
            first = np.random.default_rng(seed).choice(np.flatnonzero(truth == label))
            y[first] = label
        for walk, found in right.items():
            labels = GraphTransduction(walk_steps=walk).fit(X, y).transduction_
            found.append(float(np.mean(labels[y < 0] == truth[y < 0])))
    assert np.mean(right[30]) > np.mean(right[0]) + 0.02  # 4 points over many draws
    assert GraphTransduction().walk_steps == 30


def test_negative_walk_steps_raise_and_class_similarity_disables_the_walk() -> None:
    X, y = [[0.0], [0.1], [0.2], [5.0]], [0, -1, -1, 1]
    with pytest.raises(ValueError, match="walk_steps is -1; expected a number of steps"):
        GraphTransduction(n_neighbors=1, walk_steps=-1).fit(X, y)
    similarity = [[1.0, 0.5], [0.5, 1.0]]
    one, other = (
        GraphTransduction(n_neighbors=2, class_similarity=similarity, walk_steps=steps).fit(X, y) for steps in (0, 30)
    )
    np.testing.assert_array_equal(one.label_distributions_, other.label_distributions_)
