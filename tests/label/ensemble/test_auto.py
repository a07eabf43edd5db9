from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris

from entourage.label import AutoTransduction
from entourage.label.ensemble import auto
from entourage.label.ensemble.stacking import coverage_table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def few(truth: Ints, count: int, seed: int = 0) -> Ints:
    rng = np.random.default_rng(seed)
    y = np.full(len(truth), -1)
    for code in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == code), count, replace=False)] = code
    return y


@pytest.fixture(scope="module")
def iris() -> tuple[Floats, Ints]:
    X, truth = load_iris(return_X_y=True)
    return X * [1, 1, 100, 0.01], truth  # scales that hide the classes from a plain distance


@pytest.fixture(scope="module")
def fitted(iris: tuple[Floats, Ints]) -> AutoTransduction:
    return AutoTransduction(device="cpu").fit(iris[0], few(iris[1], 5))


def test_labels_do_not_depend_on_the_units_of_the_columns(iris: tuple[Floats, Ints], fitted: AutoTransduction) -> None:
    X, truth = iris
    assert (fitted.transduction_ == truth).mean() > 0.9
    other = AutoTransduction(device="cpu").fit(X * [1e3, 1, 1e-3, 7], few(truth, 5))
    assert (other.transduction_ == fitted.transduction_).mean() > 0.97


def test_weights_and_attributes_are_consistent(fitted: AutoTransduction) -> None:
    assert sum(member.weight for member in fitted.members_) == pytest.approx(1)
    assert sorted((m.weight for m in fitted.members_), reverse=True) == [m.weight for m in fitted.members_]
    assert any(member.has_graph for member in fitted.members_)
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1)
    assert (fitted.confidence_ >= 0).all()
    assert (fitted.confidence_ <= 1).all()
    free = ~fitted.labelled_mask_
    np.testing.assert_allclose(fitted.confidence_[free], fitted.label_distributions_.max(axis=1)[free])
    assert fitted.graph_.shape == (150, 150)
    assert fitted.hidden_accuracy_ is not None
    assert len(fitted.undecided_) == 0


def test_the_estimated_coverage_is_close_to_the_truth(iris: tuple[Floats, Ints], fitted: AutoTransduction) -> None:
    free = ~fitted.labelled_mask_
    right = (fitted.transduction_ == iris[1])[free]
    assert coverage_table(fitted.confidence_[free])[-1].accuracy == pytest.approx(right.mean(), abs=0.1)


def test_new_points_get_the_labels_of_the_fitted_ones(iris: tuple[Floats, Ints], fitted: AutoTransduction) -> None:
    X, truth = iris
    assert (fitted.predict(X[::3]) == truth[::3]).mean() > 0.9
    assert fitted.score(X, truth) > 0.9
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X[::9]), fitted.predict(X[::9]))
    with pytest.raises(ValueError, match="X has 2 feature sets; expected 1"):
        fitted.predict([X, X])


def test_given_labels_have_the_confidence_of_their_hidden_prediction(iris: tuple[Floats, Ints]) -> None:
    X, truth = iris
    y = few(truth, 8)
    wrong = int(np.flatnonzero(y == 0)[0])
    y[wrong] = 2
    model = AutoTransduction(device="cpu").fit(X, y)
    assert model.transduction_[wrong] == 2
    assert model.confidence_[wrong] == model.confidence_[model.labelled_mask_].min()
    assert model.confidence_[wrong] < 0.5


def test_one_label_per_class_is_not_checked(iris: tuple[Floats, Ints]) -> None:
    model = AutoTransduction(device="cpu").fit(iris[0], few(iris[1], 1))
    assert model.hidden_accuracy_ is None
    assert not model.confidence_is_checked_
    assert any("not checked" in note for note in model.notes_)
    assert {member.hidden_accuracy for member in model.members_} == {None}


def test_a_graph_is_the_wrong_tool_if_most_columns_are_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12))
    X[:, 1:] *= 1.5
    truth = (X[:, 0] > 0).astype(int)
    y = few(truth, 40)
    model = AutoTransduction(device="cpu").fit(X, y)
    assert any("wrong tool" in note for note in model.notes_)
    best = max(model.members_, key=lambda member: member.weight)
    assert not best.has_graph
    assert (model.transduction_ == truth)[y < 0].mean() > 0.8


def test_mixed_columns_sparse_features_and_several_sets(iris: tuple[Floats, Ints]) -> None:
    X, truth = iris
    y = few(truth, 4)
    frame = pd.DataFrame(X[:, 1:])
    frame["kind"] = np.where(X[:, 0] > 5.5, "long", "short")
    assert (AutoTransduction(device="cpu").fit(frame, y).transduction_ == truth).mean() > 0.85
    scaled = sparse.csr_matrix(load_iris().data)
    model = AutoTransduction(device="cpu").fit(scaled, y)
    assert (model.transduction_ == truth).mean() > 0.85
    assert model.predict(scaled[:5]).shape == (5,)
    both = AutoTransduction(device="cpu").fit([X[:, :2], X[:, 2:]], y)
    assert (both.transduction_ == truth).mean() > 0.85
    assert both.predict_proba([X[:4, :2], X[:4, 2:]]).shape == (4, 3)


def test_text_labels_priors_and_class_frequencies(iris: tuple[Floats, Ints]) -> None:
    X, truth = iris
    names = np.array(["a", "b", "c"])[truth].astype(object)
    y = np.where(few(truth, 4) >= 0, names, "")
    free = int(np.flatnonzero((y == "") & (names == "b"))[0])
    prior = np.full((150, 3), 1 / 3)
    prior[free] = [0.5, 0, 0.5]
    model = AutoTransduction(class_priors="empirical", device="cpu").fit(X, y, prior)
    assert model.transduction_[free] != "b"
    assert set(model.transduction_) <= {"a", "b", "c"}
    np.testing.assert_allclose(model.label_distributions_.mean(axis=0), 1 / 3, atol=0.05)


def test_a_single_class_and_large_sets_are_labelled(iris: tuple[Floats, Ints], monkeypatch: pytest.MonkeyPatch) -> None:
    X, truth = iris
    y = np.full(150, -1)
    y[:5] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoTransduction(device="cpu").fit(X, y)
    assert set(model.transduction_.tolist()) <= {0, -1}
    monkeypatch.setattr(auto, "MAX_SELECTION", 60)
    model = AutoTransduction(device="cpu").fit(X, few(truth, 5))
    assert (model.transduction_ == truth).mean() > 0.85


def test_parameters_are_cloned_and_checked(iris: tuple[Floats, Ints]) -> None:
    assert clone(AutoTransduction(n_folds=3)).n_folds == 3
    X, truth = iris
    with pytest.raises(ValueError, match="n_folds is 1; expected 2 or more"):
        AutoTransduction(n_folds=1).fit(X, truth)
    with pytest.raises(ValueError, match="feature sets of 149, 150 points; expected equal numbers"):
        AutoTransduction().fit([X, X[1:]], truth)
    with pytest.raises(ValueError, match=r"y has shape \(149,\); expected \(150,\), one label per point"):
        AutoTransduction().fit(X, truth[1:])
    with pytest.raises(ValueError, match="class_priors is 'equal'; expected 'empirical', an array, or None"):
        AutoTransduction(class_priors="equal", device="cpu").fit(X, few(truth, 1))  # type: ignore[arg-type]


def test_with_one_label_per_class_unlabelled_points_show_the_direction_of_the_classes() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(300) % 2
    X = rng.normal(size=(300, 12))
    X[:, :6] += 1.2 * truth[:, None]  # no gap between the classes in any column
    right = [
        (AutoTransduction(device="cpu").fit(X, few(truth, 1, seed)).transduction_ == truth).mean() for seed in (0, 1)
    ]
    assert min(right) > 0.9
    model = AutoTransduction(device="cpu").fit(X, few(truth, 1))
    assert model.hidden_accuracy_ is None
    assert [m.weight for m in model.members_] == sorted((m.weight for m in model.members_), reverse=True)
    assert any(member.name.startswith("Gaussian mixture") for member in model.members_)
    assert (model.predict(X) == model.transduction_).mean() > 0.95
