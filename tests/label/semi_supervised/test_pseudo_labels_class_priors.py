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
    """Random similarities; the one label of the second class has a loud voice."""
    w = np.random.default_rng(0).uniform(0.5, 1, (60, 60))
    w[3] *= 9
    return check_graph(w + w.T, "error")[0]


def labeller(name: str, **told: object) -> GraphLabeller:
    return LABELLERS[name](classes=np.arange(2), device="cpu", **told)


def test_means_become_the_shares_as_far_as_distributions_are_sure_and_rows_stay_distributions() -> None:
    x = np.random.default_rng(0).dirichlet([5, 2, 1], 200)
    shares = np.array([0.2, 0.3, 0.5])
    held = scale_to_priors(x, shares)
    np.testing.assert_allclose(held.sum(axis=1), 1)
    sure = (x.max(axis=1).mean() - 1 / 3) / (1 - 1 / 3)
    np.testing.assert_allclose(held.mean(axis=0), sure * shares + (1 - sure) / 3, atol=0.01)
    odds = (held[:, 0] / held[:, 1]) / (x[:, 0] / x[:, 1])
    np.testing.assert_allclose(odds, odds[0])  # classes are weighed, and the same everywhere


def test_equal_shares_are_kept_to_however_sure_distributions_are() -> None:
    x = np.random.default_rng(0).dirichlet([5, 2, 1], 200)
    np.testing.assert_allclose(scale_to_priors(x, np.full(3, 1 / 3)).mean(axis=0), 1 / 3, atol=0.01)


@pytest.mark.parametrize("certainty", [0.02, 0.5, 0.98])
def test_rare_classes_are_found_however_flat_distributions_are(certainty: float) -> None:
    truth = np.repeat(np.arange(10), [910] + 9 * [10])
    shares = np.bincount(truth) / len(truth)
    x = certainty * np.eye(10)[truth] + (1 - certainty) * np.random.default_rng(0).dirichlet(np.full(10, 1e6), 1000)
    assert np.array_equal(scale_to_priors(x, shares).argmax(axis=1), truth)
    biased = x * np.array([0.5] + 9 * [1.0])  # the frequent class is heard too softly
    biased /= biased.sum(axis=1, keepdims=True)
    found = scale_to_priors(biased, shares).argmax(axis=1)
    assert (found == truth).mean() > 0.98  # noise of a thousandth is all that is left
    assert (biased.argmax(axis=1) == truth).all() == (certainty > 0.02)


def test_what_is_certain_or_ruled_out_stays_so() -> None:
    x = np.array([[1.0, 0, 0], [0, 0.5, 0.5], [0.6, 0.4, 0], [0.8, 0.2, 0.0]], dtype=np.float32)
    held = scale_to_priors(x, np.array([0.4, 0.6, 0.0]))
    assert held.dtype == np.float32
    assert held[0].tolist() == [1, 0, 0]
    assert np.array_equal(held == 0, x == 0)
    assert np.isfinite(scale_to_priors(np.array([[1.0, 0.0]]), np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("name", [name for name in LABELLERS if name != "game"])
def test_every_labeller_comes_nearer_to_the_shares(name: str, graph: sparse.csr_matrix) -> None:
    plain = fit_labeller(labeller(name), graph, CODES)
    assert np.array_equal(plain.transduction_, labeller(name).fit_graph(graph, CODES).transduction_)
    balanced = fit_labeller(labeller(name), graph, CODES, balance=True)
    sure = 2 * plain.label_distributions_.max(axis=1).mean() - 1
    wanted = 0.5 + sure * np.array([0.25, -0.25])  # three labels of the one class, one of the other
    near, far = (np.abs(one.label_distributions_.mean(axis=0) - wanted).max() for one in (balanced, plain))
    assert near < far / 5
    np.testing.assert_allclose(balanced.label_distributions_.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(balanced.transduction_, balanced.label_distributions_.argmax(axis=1))
    assert ((balanced.confidence_ >= 0) & (balanced.confidence_ <= 1)).all()


@pytest.mark.parametrize("name", [name for name in LABELLERS if name not in ("game", "svm")])
def test_new_points_hear_what_fitted_points_were_held_to(name: str, graph: sparse.csr_matrix) -> None:
    balanced = fit_labeller(labeller(name), graph, CODES, balance=True)
    one_by_one = balanced.predict_proba(np.eye(60))  # each asks one of the fitted points
    np.testing.assert_allclose(one_by_one, balanced.label_distributions_, atol=1e-6)
    np.testing.assert_array_equal(balanced.predict(np.eye(60)), balanced.transduction_)


def test_the_game_keeps_to_the_shares_while_it_is_played(graph: sparse.csr_matrix) -> None:
    fitted = fit_labeller(labeller("game"), graph, CODES, balance=True)
    told = labeller("game", class_priors="empirical").fit_graph(graph, CODES)
    assert np.array_equal(fitted.label_distributions_, told.label_distributions_)
    plain = labeller("game").fit_graph(graph, CODES)
    assert not np.array_equal(fitted.label_distributions_, plain.label_distributions_)


@pytest.mark.filterwarnings("ignore:2 of 8 points end in a tie")
def test_what_no_label_reaches_stays_undecided() -> None:
    w = sparse.block_diag([np.ones((4, 4)) - np.eye(4)] * 2).tocsr()
    codes = np.array([0, 1, *[-1] * 6])
    with pytest.warns(UserWarning, match="no label reaches 4 of 8 points"):
        fitted = fit_labeller(labeller("spreading"), w, codes, balance=True)
    assert fitted.transduction_[4:].tolist() == [-1] * 4
    assert (fitted.confidence_[4:] == 0).all()


def test_shares_that_were_told_are_kept(graph: sparse.csr_matrix) -> None:
    told = GraphTransduction(classes=np.arange(2), device="cpu", class_priors=[0.1, 0.9])
    fitted = fit_labeller(told, graph, CODES, balance=True)
    alone = GraphTransduction(classes=np.arange(2), device="cpu", class_priors=[0.1, 0.9]).fit_graph(graph, CODES)
    assert np.array_equal(fitted.label_distributions_, alone.label_distributions_)
