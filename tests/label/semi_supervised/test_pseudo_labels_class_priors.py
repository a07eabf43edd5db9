import numpy as np
import pytest
from scipy import sparse

from entourage.label import GraphTransduction
from entourage.label.base import GraphLabeller, check_graph
from entourage.label.semi_supervised.baselines import LABELLERS
from entourage.label.semi_supervised.pseudo_labels import fit_labeller, scale_to_priors

CODES = np.array([0, 0, 0, 1, *[-1] * 56])


@pytest.fixture(scope="module")
def graph() -> sparse.csr_matrix:
    """Random similarities; the only labelled point of the second class has large weights."""
    w = np.random.default_rng(0).uniform(0.5, 1, (60, 60))
    w[3] *= 9
    return check_graph(w + w.T, "error")[0]


def labeller(name: str, **arguments: object) -> GraphLabeller:
    return LABELLERS[name](classes=np.arange(2), device="cpu", **arguments)


def test_means_interpolate_between_priors_and_uniform_by_confidence() -> None:
    x = np.random.default_rng(0).dirichlet([5, 2, 1], 200)
    priors = np.array([0.2, 0.3, 0.5])
    scaled = scale_to_priors(x, priors)
    np.testing.assert_allclose(scaled.sum(axis=1), 1)
    confidence = (x.max(axis=1).mean() - 1 / 3) / (1 - 1 / 3)
    np.testing.assert_allclose(scaled.mean(axis=0), confidence * priors + (1 - confidence) / 3, atol=0.01)
    odds = (scaled[:, 0] / scaled[:, 1]) / (x[:, 0] / x[:, 1])
    np.testing.assert_allclose(odds, odds[0])  # all rows are scaled by the same factors


def test_equal_priors_are_matched_at_any_confidence() -> None:
    x = np.random.default_rng(0).dirichlet([5, 2, 1], 200)
    np.testing.assert_allclose(scale_to_priors(x, np.full(3, 1 / 3)).mean(axis=0), 1 / 3, atol=0.01)


@pytest.mark.parametrize("confidence", [0.02, 0.5, 0.98])
def test_rare_classes_keep_their_labels_at_any_confidence(confidence: float) -> None:
    truth = np.repeat(np.arange(10), [910] + 9 * [10])
    priors = np.bincount(truth) / len(truth)
    x = confidence * np.eye(10)[truth] + (1 - confidence) * np.random.default_rng(0).dirichlet(np.full(10, 1e6), 1000)
    assert np.array_equal(scale_to_priors(x, priors).argmax(axis=1), truth)
    biased = x * np.array([0.5] + 9 * [1.0])  # too small for the frequent class
    biased /= biased.sum(axis=1, keepdims=True)
    found = scale_to_priors(biased, priors).argmax(axis=1)
    assert (found == truth).mean() > 0.98  # noise of 0.1 % remains
    assert (biased.argmax(axis=1) == truth).all() == (confidence > 0.02)


def test_one_hot_rows_and_zeros_do_not_change() -> None:
    x = np.array([[1.0, 0, 0], [0, 0.5, 0.5], [0.6, 0.4, 0], [0.8, 0.2, 0.0]], dtype=np.float32)
    scaled = scale_to_priors(x, np.array([0.4, 0.6, 0.0]))
    assert scaled.dtype == np.float32
    assert scaled[0].tolist() == [1, 0, 0]
    assert np.array_equal(scaled == 0, x == 0)
    assert np.isfinite(scale_to_priors(np.array([[1.0, 0.0]]), np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("name", [name for name in LABELLERS if name != "game"])
def test_balance_moves_every_labeller_towards_the_priors(name: str, graph: sparse.csr_matrix) -> None:
    plain = fit_labeller(labeller(name), graph, CODES)
    assert np.array_equal(plain.transduction_, labeller(name).fit_graph(graph, CODES).transduction_)
    balanced = fit_labeller(labeller(name), graph, CODES, balance=True)
    confidence = 2 * plain.label_distributions_.max(axis=1).mean() - 1
    expected = 0.5 + confidence * np.array([0.25, -0.25])  # three labels of class 0, one of class 1
    error, plain_error = (np.abs(one.label_distributions_.mean(axis=0) - expected).max() for one in (balanced, plain))
    assert error < plain_error / 5
    np.testing.assert_allclose(balanced.label_distributions_.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(balanced.transduction_, balanced.label_distributions_.argmax(axis=1))
    assert ((balanced.confidence_ >= 0) & (balanced.confidence_ <= 1)).all()


@pytest.mark.parametrize("name", [name for name in LABELLERS if name not in ("game", "svm")])
def test_predictions_follow_the_scaled_distributions(name: str, graph: sparse.csr_matrix) -> None:
    balanced = fit_labeller(labeller(name), graph, CODES, balance=True)
    predicted = balanced.predict_proba(np.eye(60))  # each query is similar to one fitted point
    np.testing.assert_allclose(predicted, balanced.label_distributions_, atol=1e-6)
    np.testing.assert_array_equal(balanced.predict(np.eye(60)), balanced.transduction_)


def test_balance_of_the_game_is_empirical_class_priors(graph: sparse.csr_matrix) -> None:
    fitted = fit_labeller(labeller("game"), graph, CODES, balance=True)
    empirical = labeller("game", class_priors="empirical").fit_graph(graph, CODES)
    assert np.array_equal(fitted.label_distributions_, empirical.label_distributions_)
    plain = labeller("game").fit_graph(graph, CODES)
    assert not np.array_equal(fitted.label_distributions_, plain.label_distributions_)


@pytest.mark.filterwarnings("ignore:2 of 8 points end in a tie")
def test_unreached_points_stay_undecided() -> None:
    w = sparse.block_diag([np.ones((4, 4)) - np.eye(4)] * 2).tocsr()
    codes = np.array([0, 1, *[-1] * 6])
    with pytest.warns(UserWarning, match="no label reaches 4 of 8 points"):
        fitted = fit_labeller(labeller("spreading"), w, codes, balance=True)
    assert fitted.transduction_[4:].tolist() == [-1] * 4
    assert (fitted.confidence_[4:] == 0).all()


def test_explicit_class_priors_are_not_replaced(graph: sparse.csr_matrix) -> None:
    explicit = GraphTransduction(classes=np.arange(2), device="cpu", class_priors=[0.1, 0.9])
    fitted = fit_labeller(explicit, graph, CODES, balance=True)
    alone = GraphTransduction(classes=np.arange(2), device="cpu", class_priors=[0.1, 0.9]).fit_graph(graph, CODES)
    assert np.array_equal(fitted.label_distributions_, alone.label_distributions_)
