from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from entourage.cluster import LearnedClustering, score


def blobs(n: int = 200, k: int = 4, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, k, n)
    return 9 * np.eye(d)[truth] + rng.normal(size=(n, d)), truth


def test_it_is_an_estimator_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(LearnedClustering())


def test_separate_clusters_are_found_with_their_number() -> None:
    X, truth = blobs()
    clustering = LearnedClustering().fit(X)
    assert score(truth, clustering.labels_).mr == 0
    assert clustering.n_clusters_ == 4
    assert clustering.n_features_in_ == 6
    assert np.bincount(clustering.labels_).tolist() == sorted(np.bincount(truth).tolist(), reverse=True)
    np.testing.assert_allclose(clustering.probabilities_.sum(1), 1)
    np.testing.assert_array_equal(clustering.probabilities_.argmax(1), clustering.labels_)
    assert clustering.count_probabilities_.shape == (50,)
    assert clustering.count_probabilities_.argmax() == 3
    assert clustering.count_probabilities_.sum() == pytest.approx(1)


def test_every_number_of_clusters_is_available() -> None:
    X, truth = blobs(60)
    clustering = LearnedClustering().fit(X)
    for k in (1, 2, 4, 7, 45, 60):
        assert len(set(clustering.labels_for(k).tolist())) == k
        assert LearnedClustering(n_clusters=k).fit(X).n_clusters_ == k
    assert score(truth, clustering.labels_for(4)).mr == 0
    with pytest.raises(ValueError, match="n_clusters is 61; expected at most 60"):
        LearnedClustering(n_clusters=61).fit(X)


def test_new_items_get_the_cluster_of_their_neighbours() -> None:
    X, truth = blobs(260)
    clustering = LearnedClustering().fit(X[:200])
    both = np.concatenate([clustering.labels_, clustering.predict(X[200:])])
    assert score(truth, both).mr == 0
    np.testing.assert_array_equal(clustering.predict(X[:200]), clustering.labels_)
    np.testing.assert_array_equal(clustering.predict_proba(X[200:]).argmax(1), both[200:])
    with pytest.raises(NotFittedError):
        LearnedClustering().predict(X)


def test_it_works_in_a_pipeline_with_a_frame_and_as_a_clone() -> None:
    X, truth = blobs()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    pipeline = make_pipeline(StandardScaler(), LearnedClustering(n_clusters=4)).set_output(transform="pandas")
    assert score(truth, pipeline.fit_predict(frame)).mr == 0
    assert score(truth, pipeline.predict(frame)).mr == 0
    fitted = LearnedClustering(n_clusters=4).fit(frame)
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    np.testing.assert_array_equal(fresh.fit_predict(frame), fitted.labels_)


def test_order_and_units_have_no_effect() -> None:
    X, truth = blobs()
    order = np.random.default_rng(0).permutation(len(X))
    assert score(truth[order], LearnedClustering().fit_predict(1e6 * X[order] + 5e7)).mr == 0


@pytest.mark.parametrize("change", ["rounded", "repeated", "outlier", "ten times"])
def test_altered_tables_have_the_same_clusters(change: str) -> None:
    X, truth = blobs()
    if change == "rounded":
        X = np.round(X)
    elif change == "repeated":
        X, truth = np.concatenate([X, X[:50], X[:50]]), np.concatenate([truth, truth[:50], truth[:50]])
    elif change == "outlier":
        X[0, 0] = 10_000
    else:
        X[:, 1] *= 10
    assert score(truth, LearnedClustering().fit_predict(X)).ari > 0.95


def test_many_rows_are_clustered_by_a_part_of_them() -> None:
    X, truth = blobs(3000)
    clustering = LearnedClustering(set_size=200, random_state=1).fit(X)
    assert score(truth, clustering.labels_).ari > 0.98


def test_noise_is_marked_on_request() -> None:
    X, truth = blobs()
    X[:3] = np.random.default_rng(0).uniform(-60, 60, (3, 6))
    labels = LearnedClustering(noise=True, n_clusters=4).fit_predict(X)
    assert (labels[:3] == -1).all()
    assert (labels[3:] == -1).mean() < 0.05
    assert score(truth[labels >= 0], labels[labels >= 0]).mr == 0
    assert (LearnedClustering(n_clusters=4).fit_predict(X) >= 0).all()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0, np.nan], [1.0, 2.0]], "NaN"),
        ([[0.0, 1.0]], "minimum of 2 is required"),
        ([0.0, 1.0, 2.0], "Expected 2D array"),
    ],
)
def test_invalid_tables_raise(X: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedClustering().fit(X)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_few_rows_are_accepted(n: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, 3))
    assert LearnedClustering().fit_predict(X).shape == (n,)
    assert LearnedClustering().fit(np.ones((n, 2))).n_clusters_ == 1
