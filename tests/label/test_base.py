"""Common behaviour of all labellers."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.label.conftest import METHODS, Data, Method, assert_sound

from entourage.game import NeighborGraph
from entourage.label import GraphTransduction, LabelSpreading, LinearSVMLabeller, PoissonLearning
from entourage.label.base import GraphLabeller, check_graph


def expected_failures(estimator: GraphLabeller) -> dict[str, str]:
    if type(estimator).__name__ in ("LabelPropagation", "LabelSpreading"):  # exempted by the check
        return {}
    return {
        "check_classifiers_classes": "-1 means unlabelled here, as in scikit-learn's own LabelPropagation, "
        "which the check exempts by name"
    }


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([method() for method in METHODS], expected_failed_checks=expected_failures)
def test_scikit_learn_conventions(estimator: GraphLabeller, check: Any) -> None:
    check(estimator)


def test_one_label_per_cluster_labels_the_cluster(method: Method, three: Data) -> None:
    found = method().fit(three.X, three.y)
    assert_sound(found, 60)
    np.testing.assert_array_equal(found.labelled_mask_, three.y >= 0)
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


def test_pipelines_work(method: Method, three: Data) -> None:
    pipeline = make_pipeline(StandardScaler(), method()).fit(three.X * [1, 1000], three.y)
    np.testing.assert_array_equal(pipeline.predict(three.X * [1, 1000]), three.truth)
    assert pipeline.score(three.X * [1, 1000], three.truth) == 1


def test_grid_search_works(method: Method, three: Data) -> None:
    y = np.where(np.arange(60) % 2 == 0, three.truth, -1)
    search = GridSearchCV(method(), {"n_neighbors": [3, 5]}, cv=3, error_score="raise").fit(three.X, y)
    assert search.best_score_ == 1
    np.testing.assert_array_equal(search.predict(three.X), three.truth)


def test_a_precomputed_graph_can_be_cross_validated(method: Method, three: Data) -> None:
    w = np.exp(-((three.X[:, None] - three.X) ** 2).sum(axis=2))
    y = np.where(np.arange(60) % 2 == 0, three.truth, -1)
    assert cross_val_score(method(affinity="precomputed"), w, y, cv=3, error_score="raise").tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
def test_all_labellers_can_share_one_graph(method: Method, three: Data, kind: Any) -> None:
    graph = NeighborGraph(torch.from_numpy(three.X))
    w = graph.w.toarray()
    passed = kind(w)
    found = method(affinity="precomputed").fit(passed, three.y)
    assert_sound(found, 60)
    np.testing.assert_array_equal(found.graph_.toarray(), w)
    assert (passed != kind(w)).sum() == 0
    assert set(found.predict(kind(w[:9]))) <= {0, 1, 2}
    if method is LinearSVMLabeller:
        return  # its features are 0 for points that are not neighbours of a labelled one
    np.testing.assert_array_equal(found.transduction_, three.truth)
    np.testing.assert_array_equal(found.predict(kind(w[:9])), three.truth[:9])
    direct = method().fit(three.X, three.y)
    np.testing.assert_allclose(direct.label_distributions_, found.label_distributions_, atol=1e-5)
    queries = three.X[:20] + 0.1
    similarities = graph.weights_to(torch.from_numpy(queries))
    np.testing.assert_allclose(direct.predict_proba(queries), found.predict_proba(similarities), atol=1e-5)


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


def test_a_single_class_labels_all_points(method: Method, three: Data) -> None:
    connected = method(n_neighbors=30).fit(three.X, np.where(np.arange(60) == 7, 5, -1))
    assert_sound(connected, 60)
    assert set(connected.transduction_) == {5}
    np.testing.assert_allclose(connected.predict_proba(three.X), 1)


def test_a_class_without_labels_is_never_predicted_and_warns_once(method: Method, three: Data) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = method(classes=[2, 9, 1, 0]).fit(three.X, three.y)
    assert [str(w.message) for w in caught] == ["no point is labelled 9: this is never predicted"]
    assert_sound(found, 60)
    assert found.classes_.tolist() == [2, 9, 1, 0]
    np.testing.assert_array_equal(found.transduction_, three.truth)
    assert (found.label_distributions_[:, 1] == 0).all()
    assert (found.predict_proba(three.X * 3)[:, 1] == 0).all()
    assert 9 not in found.predict(three.X * 3)


def test_warnings_point_to_the_call_of_fit(method: Method, three: Data) -> None:
    with pytest.warns(UserWarning, match="never predicted") as caught:
        method(classes=[0, 1, 2, 3]).fit(three.X, three.y)
    assert [w.filename for w in caught] == [__file__]


def test_duplicates_share_their_label(method: Method, three: Data) -> None:
    X, y = np.repeat(three.X, 12, axis=0), np.repeat(three.y, 12)
    y[1::2] = -1
    found = method(n_neighbors=60).fit(X, y)  # more than the eleven copies of each point
    assert_sound(found, 720)
    np.testing.assert_array_equal(found.transduction_, np.repeat(three.truth, 12))
    np.testing.assert_array_equal(found.predict(three.X), three.truth)


@pytest.mark.filterwarnings("ignore:no label reaches")
def test_only_duplicates_can_be_fitted(method: Method) -> None:
    found = method().fit(np.ones((20, 3)), [0, 1] + [-1] * 18)
    assert_sound(found, 20)
    assert np.isfinite(found.predict_proba(np.ones((2, 3)))).all()


@pytest.mark.parametrize(("y", "expected"), [([3, -1], [3, 3]), ([3, 5], [3, 5]), ([5, 3], [5, 3])])
def test_two_points_suffice(method: Method, y: list[int], expected: list[int]) -> None:
    found = method().fit([[0.0], [1.0]], y)
    assert_sound(found, 2)
    if method in (LabelSpreading, PoissonLearning) and -1 not in y:
        return  # labels are not fixed, and each point has only the other as neighbour
    assert found.transduction_.tolist() == expected


def test_a_permutation_of_the_points_permutes_the_result(method: Method, three: Data) -> None:
    noisy = three.X + np.random.default_rng(5).normal(size=(60, 2))
    order = np.random.default_rng(6).permutation(60)
    y = np.where(np.arange(60) % 7 == 0, three.truth, -1)
    plain, moved = method(n_neighbors=8).fit(noisy, y), method(n_neighbors=8).fit(noisy[order], y[order])
    np.testing.assert_allclose(moved.label_distributions_, plain.label_distributions_[order], atol=1e-3)
    np.testing.assert_array_equal(moved.transduction_, plain.transduction_[order])


def test_arrays_with_negative_strides_can_be_fitted(method: Method, three: Data) -> None:
    found = method().fit(three.X[::-1], three.y[::-1])
    np.testing.assert_array_equal(found.transduction_, three.truth[::-1])
    np.testing.assert_array_equal(found.predict(three.X[::-1]), three.truth[::-1])


def test_results_are_deterministic(method: Method, three: Data) -> None:
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
    with pytest.raises(ValueError, match="5 labels for 60 points to score; expected one each"):
        found.score(three.X, y[:5])


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
@pytest.mark.parametrize("affinity", ["cosine", "precomputed"])
def test_predictions_do_not_depend_on_the_other_queries(
    graph_method: Method, three: Data, affinity: Any, negatives: Any
) -> None:
    unit = (three.X - 2) / np.linalg.norm(three.X - 2, axis=1, keepdims=True)
    X, queries = (unit @ unit.T, unit[::7] @ unit.T) if affinity == "precomputed" else (unit, unit[::7] + 0.1)
    found = graph_method(40, affinity, negatives=negatives).fit(X, three.y)
    alone = np.concatenate([found.predict_proba(query[None]) for query in queries])
    np.testing.assert_allclose(alone, found.predict_proba(queries), atol=1e-6)


def test_fit_graph_equals_fit_with_a_precomputed_graph(method: Method) -> None:
    rng = np.random.default_rng(0)
    w = sparse.csr_matrix(np.triu(rng.random((20, 20)), 1))
    graph, _ = check_graph(w + w.T, "error")
    y = np.where(np.arange(20) < 9, np.arange(20) % 3, -1)
    prior = rng.random((20, 3))
    slow = method(affinity="precomputed", device="cpu").fit(w + w.T, y, prior)
    fast = method(device="cpu").fit_graph(graph, y, prior)  # the affinity is ignored
    assert np.array_equal(fast.transduction_, slow.transduction_)
    assert np.array_equal(fast.label_distributions_, slow.label_distributions_)
    assert np.array_equal(fast.confidence_, slow.confidence_)
    assert fast.n_features_in_ == 20
    assert np.array_equal(fast.predict(graph[:3]), slow.predict(graph[:3]))  # sparse, too
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fast.fit_graph(graph, y[:19])


def test_after_fit_graph_predict_expects_similarities(graph_method: Method, three: Data) -> None:
    similar = graph_method().fit(three.X, three.y).graph_
    found = graph_method().fit_graph(similar, three.y)
    queries = similar[:4].toarray()
    np.testing.assert_array_equal(found.predict(queries), three.truth[:4])
    with pytest.raises(ValueError, match=r"\(4, 2\), but the model was fitted to a graph; expected the"):
        found.predict(three.X[:4])


@pytest.mark.parametrize("labels", [[0.0, np.nan, np.nan, 1.0], np.array([0, np.nan, np.nan, 1], dtype=np.float32)])
def test_nan_denotes_unlabelled_and_whole_numbers_stay_integers(labels: Any) -> None:
    model = GraphTransduction(n_neighbors=1).fit([[0.0], [0.1], [5.0], [5.1]], labels)
    assert model.transduction_.tolist() == [0, 0, 1, 1]
    assert model.transduction_.dtype.kind == "i"


def test_nan_denotes_unlabelled_among_text_labels() -> None:
    model = GraphTransduction(n_neighbors=1).fit([[0.0], [0.1], [5.0], [5.1]], ["a", np.nan, np.nan, "b"])
    assert model.transduction_.tolist() == ["a", "a", "b", "b"]


def test_sparse_features_and_distances_give_the_labels_of_dense_features(graph_method: Any) -> None:
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(size=(30, 5)), generator.normal(4, size=(30, 5))])
    y = np.array([0] * 2 + [-1] * 28 + [1] * 2 + [-1] * 28)
    dense = graph_method(n_neighbors=5).fit(X, y)
    for options, given, queries in (
        ({}, sparse.csr_matrix(X), sparse.csr_matrix(X[::7])),
        ({"metric": "precomputed"}, cdist(X, X), cdist(X[::7], X)),
        ({"metric": "sqeuclidean", "squared": False}, X, X[::7]),
    ):
        model = graph_method(n_neighbors=5, **options).fit(given, y)
        np.testing.assert_array_equal(model.transduction_, dense.transduction_)
        np.testing.assert_array_equal(model.predict(queries), dense.predict(X[::7]))


def test_labels_reach_points_that_occur_ten_times(graph_method: Any) -> None:
    X = np.repeat(np.arange(12.0)[:, None], 10, axis=0)
    y = np.full(120, -1)
    y[0], y[119] = 0, 1
    model = graph_method(n_neighbors=4).fit(X, y)
    assert len(model.unreached_) == 0
    assert (model.transduction_[:20] == 0).mean() > 0.9
    assert (model.transduction_[100:] == 1).mean() > 0.9
