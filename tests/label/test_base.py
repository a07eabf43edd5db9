"""What the game and all its rivals have in common, checked for each of them."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from entourage.game import NeighbourGraph
from entourage.label import (
    GraphTransduction,
    LabelHarmonic,
    LabelPropagation,
    LabelSpreading,
    LinearSVMLabeller,
    PoissonLearning,
    excluding_prior,
)
from entourage.label.base import GraphLabeller
from entourage.label.relate import checked_graph

Method = type[GraphLabeller]
Data = Any  # see conftest.py

ALL = [GraphTransduction, LabelHarmonic, LabelPropagation, LabelSpreading, PoissonLearning, LinearSVMLabeller]


def expected_failures(estimator: GraphLabeller) -> dict[str, str]:
    if type(estimator).__name__ in ("LabelPropagation", "LabelSpreading"):  # which the check exempts by name
        return {}
    return {
        "check_classifiers_classes": "-1 means unlabelled here, as in scikit-learn's own LabelPropagation, "
        "which the check exempts by name"
    }


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([method() for method in ALL], expected_failed_checks=expected_failures)
def test_scikit_learns_conventions(estimator: GraphLabeller, check: Any) -> None:
    check(estimator)


def assert_sound(found: GraphLabeller, n: int) -> None:
    """Everything fitted is finite and of the right shape, and distributions are distributions."""
    x = found.label_distributions_
    assert x.shape == (n, len(found.classes_))
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    np.testing.assert_allclose(x.sum(axis=1), 1, rtol=1e-5)
    assert found.transduction_.shape == found.confidence_.shape == (n,)
    assert np.isfinite(found.confidence_).all()
    assert (found.confidence_ >= 0).all()
    assert (found.confidence_ <= 1).all()
    assert found.graph_.shape == (n, n)
    assert np.isfinite(found.graph_.data).all()
    assert found.n_iter_ >= 1


def test_one_label_a_cluster_labels_the_cluster(method: Method, three: Data) -> None:
    found = method().fit(three.X, three.y)
    assert_sound(found, 60)
    np.testing.assert_array_equal(found.given_, three.y >= 0)
    np.testing.assert_array_equal(found.transduction_, three.truth)
    np.testing.assert_array_equal(found.predict(three.X + 0.05), three.truth)
    np.testing.assert_allclose(found.predict_proba(three.X + 0.05).sum(axis=1), 1, rtol=1e-5)
    assert found.unreached_.tolist() == []


def test_a_clone_is_unfitted_and_a_pickle_is_not(method: Method, three: Data) -> None:
    found = method(n_neighbors=4).fit(three.X, three.y)
    assert clone(found).get_params() == found.get_params()
    assert not hasattr(clone(found), "classes_")
    restored = pickle.loads(pickle.dumps(found))
    queries = np.random.default_rng(1).normal(size=(30, 2)) * 4
    np.testing.assert_array_equal(restored.predict_proba(queries), found.predict_proba(queries))
    np.testing.assert_array_equal(restored.transduction_, found.transduction_)


def test_it_works_at_the_end_of_a_pipeline(method: Method, three: Data) -> None:
    pipeline = make_pipeline(StandardScaler(), method()).fit(three.X * [1, 1000], three.y)
    np.testing.assert_array_equal(pipeline.predict(three.X * [1, 1000]), three.truth)
    assert pipeline.score(three.X * [1, 1000], three.truth) == 1


def test_neighbours_can_be_chosen_by_cross_validation(method: Method, three: Data) -> None:
    y = np.where(np.arange(60) % 2 == 0, three.truth, -1)
    search = GridSearchCV(method(), {"n_neighbors": [3, 5]}, cv=3, error_score="raise").fit(three.X, y)
    assert search.best_score_ == 1
    np.testing.assert_array_equal(search.predict(three.X), three.truth)


def test_a_graph_of_ones_own_can_be_cross_validated(method: Method, three: Data) -> None:
    w = np.exp(-((three.X[:, None] - three.X) ** 2).sum(axis=2))
    y = np.where(np.arange(60) % 2 == 0, three.truth, -1)
    assert cross_val_score(method(affinity="precomputed"), w, y, cv=3, error_score="raise").tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
def test_all_can_share_one_graph(method: Method, three: Data, kind: Any) -> None:
    graph = NeighbourGraph(torch.from_numpy(three.X))
    w = graph.w.toarray()
    given = kind(w)
    found = method(affinity="precomputed").fit(given, three.y)
    assert_sound(found, 60)
    np.testing.assert_array_equal(found.graph_.toarray(), w)
    assert (given != kind(w)).sum() == 0
    assert set(found.predict(kind(w[:9]))) <= {0, 1, 2}
    if method is LinearSVMLabeller:
        return  # to whom points that are not neighbours of a labelled one all look the same
    np.testing.assert_array_equal(found.transduction_, three.truth)
    np.testing.assert_array_equal(found.predict(kind(w[:9])), three.truth[:9])
    own = method().fit(three.X, three.y)
    np.testing.assert_allclose(own.label_distributions_, found.label_distributions_, atol=1e-5)
    queries = three.X[:20] + 0.1
    ties = graph.weights_to(torch.from_numpy(queries))
    np.testing.assert_allclose(own.predict_proba(queries), found.predict_proba(ties), atol=1e-5)


@pytest.mark.parametrize(
    ("unlabelled", "dtype"), [("", str), ("-1", str), ("", object), ("-1", object), (None, object)]
)
def test_labels_can_be_text(method: Method, three: Data, unlabelled: str | None, dtype: type) -> None:
    names = np.array(["ant", "bee", "cicada"])
    y = np.array([names[label] if label >= 0 else unlabelled for label in three.y], dtype=dtype)
    found = method().fit(three.X, y)
    assert found.classes_.tolist() == names.tolist()
    assert found.transduction_.tolist() == names[three.truth].tolist()
    assert found.predict(three.X).tolist() == names[three.truth].tolist()
    assert found.score(three.X, y) == 1


def test_all_points_may_be_labelled(method: Method, three: Data) -> None:
    found = method().fit(three.X, three.truth)
    assert_sound(found, 60)
    np.testing.assert_array_equal(found.transduction_, three.truth)


def test_one_class_is_everywhere(method: Method, three: Data) -> None:
    connected = method(n_neighbors=30).fit(three.X, np.where(np.arange(60) == 7, 5, -1))
    assert_sound(connected, 60)
    assert set(connected.transduction_) == {5}
    np.testing.assert_allclose(connected.predict_proba(three.X), 1)


def test_a_class_without_labels_is_never_predicted_and_said_once(method: Method, three: Data) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = method(classes=[2, 9, 1, 0]).fit(three.X, three.y)
    assert [str(w.message) for w in said] == ["no point is labelled 9: this is never predicted"]
    assert_sound(found, 60)
    assert found.classes_.tolist() == [2, 9, 1, 0]
    np.testing.assert_array_equal(found.transduction_, three.truth)
    assert (found.label_distributions_[:, 1] == 0).all()
    assert (found.predict_proba(three.X * 3)[:, 1] == 0).all()
    assert 9 not in found.predict(three.X * 3)


def test_what_is_said_points_to_the_call_of_fit(method: Method, three: Data) -> None:
    with pytest.warns(UserWarning, match="never predicted") as said:
        method(classes=[0, 1, 2, 3]).fit(three.X, three.y)
    assert [w.filename for w in said] == [__file__]


def test_duplicates_share_their_label(method: Method, three: Data) -> None:
    X, y = np.repeat(three.X, 12, axis=0), np.repeat(three.y, 12)
    y[1::2] = -1
    found = method(n_neighbors=60).fit(X, y)  # beyond the eleven copies of each point
    assert_sound(found, 720)
    np.testing.assert_array_equal(found.transduction_, np.repeat(three.truth, 12))
    np.testing.assert_array_equal(found.predict(three.X), three.truth)


@pytest.mark.filterwarnings("ignore:no label reaches")
def test_nothing_but_duplicates_is_no_reason_to_fail(method: Method) -> None:
    found = method().fit(np.ones((20, 3)), [0, 1] + [-1] * 18)
    assert_sound(found, 20)
    assert np.isfinite(found.predict_proba(np.ones((2, 3)))).all()


@pytest.mark.parametrize(("y", "expected"), [([3, -1], [3, 3]), ([3, 5], [3, 5]), ([5, 3], [5, 3])])
def test_two_points_suffice(method: Method, y: list[int], expected: list[int]) -> None:
    found = method().fit([[0.0], [1.0]], y)
    assert_sound(found, 2)
    if method in (LabelSpreading, PoissonLearning) and -1 not in y:
        return  # which do not hold labels, and here all that a point hears is the other's
    assert found.transduction_.tolist() == expected


def test_isolated_points_keep_what_they_know(graph_method: Method, three: Data) -> None:
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
def test_a_part_without_labels_stays_undecided(graph_method: Method, lost: Data, text: bool) -> None:
    y = np.array([str(label) for label in lost.y]) if text else lost.y
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = graph_method().fit(lost.X, y)
    assert [str(w.message) for w in said] == ["no label reaches 20 of 80 points: they stay undecided (see unreached_)"]
    assert said[0].filename == __file__
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


def test_a_uniform_prior_is_no_prior(method: Method, three: Data) -> None:
    plain = method(n_neighbors=30).fit(three.X, three.y)
    prior = method(n_neighbors=30).fit(three.X, three.y, prior=np.full((60, 3), 0.7))
    np.testing.assert_allclose(prior.label_distributions_, plain.label_distributions_, atol=1e-6)
    np.testing.assert_array_equal(prior.transduction_, plain.transduction_)


@pytest.mark.filterwarnings("ignore:no label reaches", "ignore:not solved", "ignore:.* end in a tie")
def test_a_group_that_only_the_faintest_edges_reach_is_not_given_just_any_label(graph_method: Method) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 2)) + np.repeat([[0, 0], [100, 0], [400, 0]], [20, 20, 8], axis=0)
    y = np.full(48, -1)
    y[[0, 20]] = 0, 1
    found = graph_method(n_neighbors=10).fit(X, y)
    # The last group sees nobody but the second beyond itself: either that is heard, or it is said that nothing is.
    assert set(found.transduction_[40:]) <= {1, -1}
    assert set(np.flatnonzero(found.transduction_ == -1)) == set(found.undecided_)


@pytest.mark.filterwarnings("ignore:no label reaches", "ignore:2 of 6 points end in a tie")
def test_a_tie_is_no_decision(graph_method: Method) -> None:
    block = np.ones((3, 3)) - np.eye(3)
    w = sparse.csr_matrix(sparse.block_diag([block, block]))
    prior = np.ones((6, 2))
    prior[3] = 0.2, 0.8  # which the game passes on to points 4 and 5, and its rivals keep to themselves
    found = graph_method(affinity="precomputed").fit(w, [0, 1, 0, -1, -1, -1], prior=prior)
    assert found.transduction_[3] == 1
    assert set(found.transduction_[4:]) <= ({1} if graph_method is GraphTransduction else {1, -1})
    assert set(np.flatnonzero(found.transduction_ == -1)) == set(found.undecided_)


@pytest.mark.filterwarnings("ignore:no label reaches")
def test_a_uniform_prior_reaches_nobody(graph_method: Method, lost: Data) -> None:
    assert len(graph_method().fit(lost.X, lost.y, prior=np.full((80, 3), 1 / 3)).unreached_) == 20


def test_a_prior_decides_for_the_game_where_no_label_reaches(lost: Data) -> None:
    prior = np.ones((80, 3))
    prior[70] = 0.2, 0.2, 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = GraphTransduction().fit(lost.X, lost.y, prior=prior)
    assert_sound(found, 80)
    assert found.unreached_.tolist() == []
    np.testing.assert_array_equal(found.transduction_, np.where(lost.truth == 3, 2, lost.truth))
    assert found.predict([[60.0, 60.1]]).tolist() == [2]


def test_an_excluded_label_is_impossible(method: Method, three: Data) -> None:
    excluded = {1: [0], 25: [1], 26: [1, 0], 45: [2]}
    prior = excluding_prior(60, [0, 1, 2], excluded)
    y = np.where(np.arange(60) % 4 == 0, three.truth, -1)
    found = method(n_neighbors=30).fit(three.X, y, prior=prior)
    assert_sound(found, 60)
    for point, labels in excluded.items():
        assert (found.label_distributions_[point, labels] == 0).all()
        assert found.transduction_[point] not in labels
    others = np.setdiff1d(np.arange(60), list(excluded))
    np.testing.assert_array_equal(found.transduction_[others], three.truth[others])


def test_a_permutation_of_the_points_permutes_the_answer(method: Method, three: Data) -> None:
    noisy = three.X + np.random.default_rng(5).normal(size=(60, 2))
    order = np.random.default_rng(6).permutation(60)
    y = np.where(np.arange(60) % 7 == 0, three.truth, -1)
    plain, moved = method(n_neighbors=8).fit(noisy, y), method(n_neighbors=8).fit(noisy[order], y[order])
    np.testing.assert_allclose(moved.label_distributions_, plain.label_distributions_[order], atol=1e-3)
    np.testing.assert_array_equal(moved.transduction_, plain.transduction_[order])


def test_the_same_data_give_the_same_answer(method: Method, three: Data) -> None:
    first, second = (method().fit(three.X, three.y).label_distributions_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_score_counts_labelled_points_only(method: Method, three: Data) -> None:
    found = method().fit(three.X, three.y)
    wrong = (three.truth[:3] + 1) % 3
    y = np.concatenate([wrong, three.truth[3:10], np.full(50, -1)])
    assert found.score(three.X, y) == pytest.approx(0.7)
    weights = np.concatenate([np.full(3, 7.0), np.full(7, 1.0), np.full(50, 100.0)])
    assert found.score(three.X, y, weights) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="none of the 60 points to score is labelled; expected at least one"):
        found.score(three.X, np.full(60, -1))


def changed(values: Any, position: Any, value: float) -> Any:
    values = values.copy()
    values[position] = value
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: {"y": np.full(60, -1)}, "none of the 60 points is labelled; expected at least one label"),
        (lambda X, y: {"y": np.full(60, "")}, "none of the 60 points is labelled"),
        (lambda X, y: {"X": changed(X, (3, 1), np.nan)}, "Input X contains NaN"),
        (lambda X, y: {"X": changed(X, (3, 1), np.inf)}, "Input X contains infinity"),
        (lambda X, y: {"X": sparse.csr_matrix(X)}, "Sparse data was passed|sparse"),
        (lambda X, y: {"y": y[:59]}, r"inconsistent numbers of samples: \[60, 59\]"),
        (lambda X, y: {"prior": np.ones((59, 3))}, r"the prior has shape \(59, 3\); expected \(60, 3\)"),
        (lambda X, y: {"prior": np.ones((60, 2))}, r"the prior has shape \(60, 2\); expected \(60, 3\)"),
        (
            lambda X, y: {"prior": changed(np.ones((60, 3)), (0, 0), 0)},
            "point 0 is labelled 0, which is unknown to its",
        ),
        (lambda X, y: {"prior": changed(np.ones((60, 3)), 4, 0)}, "the prior leaves point 4 no label"),
        (lambda X, y: {"prior": changed(np.ones((60, 3)), (4, 1), -1)}, "row 4 of the prior is no distribution"),
        (lambda X, y: {"classes": [0, 1, 7]}, "label 2 is not among the classes 0, 1, 7"),
        (lambda X, y: {"device": "abacus"}, "device 'abacus' is unknown; expected 'auto', 'cpu'"),
    ],
)
def test_bad_data_are_refused(method: Method, three: Data, change: Any, message: str) -> None:
    given = {"X": three.X, "y": three.y, **change(three.X, three.y)}
    options = {name: given.pop(name) for name in ("classes", "device") if name in given}
    with pytest.raises((ValueError, TypeError), match=message):
        method(**options).fit(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors is 0; expected a whole number from 1, 'auto' or None"),
        ({"n_neighbors": 1.5}, "n_neighbors is 1.5; expected"),
        ({"affinity": "rbf"}, "affinity is 'rbf'; expected one of self_tuning"),
        ({"symmetrize": "min"}, "symmetrize is 'min'; expected one of"),
        ({"affinity": "cosine", "n_neighbors": None}, "cosine has .* negative similarities"),
        ({"affinity": "cosine", "negatives": "drop"}, "negatives is 'drop'; expected one of"),
    ],
)
def test_bad_options_are_refused(graph_method: Method, three: Data, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_method(**options).fit(three.X - 2, three.y)


SQUARE = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(
    ("w", "message"),
    [
        (SQUARE[:, :2], r"the precomputed graph has shape \(3, 2\); expected a square matrix"),
        (
            changed(SQUARE, (1, 2), 0.5),
            r"not symmetric: w\[\d, \d\] = 0.\d+ but w\[\d, \d\] = 0.\d+; expected equal weights",
        ),
        (
            changed(changed(SQUARE, (1, 2), -0.25), (2, 1), -0.25),
            "2 negative similarities; expected none, or negatives=",
        ),
        (changed(changed(SQUARE, (1, 2), np.nan), (2, 1), np.nan), "NaN"),
        (changed(changed(SQUARE, (1, 2), np.inf), (2, 1), np.inf), "infinity"),
    ],
)
def test_bad_graphs_are_refused(method: Method, w: Any, message: str, kind: Any) -> None:
    with pytest.raises(ValueError, match=message):
        method(affinity="precomputed").fit(kind(w), [0, -1, 1])


def test_a_weight_that_became_0_is_no_edge(graph_method: Method) -> None:
    block = np.ones((4, 4)) - np.eye(4)
    w = np.block([[block, -0.1 * np.ones((4, 4))], [-0.1 * np.ones((4, 4)), block]])
    with pytest.warns(UserWarning, match="no label reaches 4 of 8 points"):
        found = graph_method(affinity="precomputed", negatives="clamp").fit(w, [0, 1, 1] + [-1] * 5)
    assert found.unreached_.tolist() == [4, 5, 6, 7]
    assert (found.graph_.data > 0).all()


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
@pytest.mark.parametrize("affinity", ["cosine", "precomputed"])
def test_a_new_point_is_judged_alone_as_in_company(
    graph_method: Method, three: Data, affinity: Any, negatives: Any
) -> None:
    unit = (three.X - 2) / np.linalg.norm(three.X - 2, axis=1, keepdims=True)
    X, queries = (unit @ unit.T, unit[::7] @ unit.T) if affinity == "precomputed" else (unit, unit[::7] + 0.1)
    found = graph_method(40, affinity, negatives=negatives).fit(X, three.y)
    alone = np.concatenate([found.predict_proba(query[None]) for query in queries])
    np.testing.assert_allclose(alone, found.predict_proba(queries), atol=1e-6)


@pytest.mark.parametrize("method", ALL)
def test_a_graph_that_was_checked_gives_the_same_labels(method: Method) -> None:
    rng = np.random.default_rng(0)
    w = sparse.csr_matrix(np.triu(rng.random((20, 20)), 1))
    graph, _ = checked_graph(w + w.T, "error")
    y = np.where(np.arange(20) < 9, np.arange(20) % 3, -1)
    prior = rng.random((20, 3))
    slow = method(affinity="precomputed", device="cpu").fit(w + w.T, y, prior)
    fast = method(device="cpu").fit_graph(graph, y, prior)  # whatever the affinity
    assert np.array_equal(fast.transduction_, slow.transduction_)
    assert np.array_equal(fast.label_distributions_, slow.label_distributions_)
    assert np.array_equal(fast.confidence_, slow.confidence_)
    assert fast.n_features_in_ == 20
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fast.fit_graph(graph, y[:19])
