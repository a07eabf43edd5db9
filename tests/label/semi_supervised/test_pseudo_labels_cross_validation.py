import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from entourage.label import GraphTransduction
from entourage.label.base import GraphLabeller, TransductionProblem
from entourage.label.semi_supervised import pseudo_labels as module
from entourage.label.semi_supervised.pseudo_labels import (
    FOLDS,
    count_held_out,
    held_out_accuracy,
    is_significantly_lower,
)
from entourage.label.targets import Floats

FITTED_CODES: list[NDArray[np.int64]] = []


class ConstantLabeller(GraphLabeller):
    """Predict class 0 everywhere and record the labels of each fit."""

    def _distribute(self, problem: TransductionProblem) -> Floats:
        FITTED_CODES.append(problem.targets.codes.copy())
        x = np.full(problem.initial.shape, 0.1)
        x[:, 0] = 0.9
        return np.where(problem.targets.labelled[:, None], problem.initial, x)


def complete(n: int) -> sparse.csr_matrix:
    return sparse.csr_matrix(np.ones((n, n)) - np.eye(n))


def test_each_label_is_hidden_once_and_each_class_stays_visible() -> None:
    FITTED_CODES.clear()
    codes = np.array([0] * 7 + [1] * 2 + [2] + [-1] * 5)
    score = held_out_accuracy(ConstantLabeller(affinity="precomputed", classes=np.arange(3)), complete(15), codes)
    assert len(FITTED_CODES) == FOLDS
    hidden = np.stack([(visible == -1) & (codes >= 0) for visible in FITTED_CODES])  # (folds, n)
    assert hidden.sum(axis=0).tolist() == [1] * 9 + [0] * 6  # the only label of the last class is never hidden
    for visible, fold in zip(FITTED_CODES, hidden, strict=True):
        assert np.array_equal(visible[~fold], codes[~fold])
        assert set(visible[visible >= 0]) == {0, 1, 2}
    assert score == pytest.approx(7 / 9)  # the first class is always right, the second always wrong


def test_accuracy_counts_hidden_labels_that_are_predicted() -> None:
    w = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 2).tocsr()
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    right = np.array([0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1])
    assert held_out_accuracy(labeller, w, right) == 1.0
    wrong = np.array([0, 0, 0, 1, -1, -1, 1, 1, 1, 0, -1, -1])  # one label in four contradicts its neighbours
    assert held_out_accuracy(labeller, w, wrong) == pytest.approx(6 / 8)


def test_priors_are_used_in_cross_validation() -> None:
    w = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 2).tocsr()
    codes = np.array([0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1])
    prior = np.full((12, 2), 0.5)
    prior[0] = (1e-9, 1.0)  # a prior of 0 would exclude the given label
    labeller = GraphTransduction(affinity="precomputed", device="cpu", max_iter=3, tol=None)
    assert held_out_accuracy(labeller, w, codes, prior) == pytest.approx(5 / 6)


def test_unreached_labels_count_as_wrong_without_a_warning() -> None:
    w = sparse.csr_matrix((4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labeller = GraphTransduction(affinity="precomputed", device="cpu")
        assert held_out_accuracy(labeller, w, np.array([0, 0, 1, 1])) == 0.0


def test_the_labeller_stays_unfitted_and_the_result_is_deterministic() -> None:
    rng = np.random.default_rng(0)
    w = sparse.csr_matrix(np.triu(rng.random((30, 30)), 1))
    codes = np.where(np.arange(30) < 20, rng.integers(0, 3, 30), -1)
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    scores = {held_out_accuracy(labeller, w + w.T, codes) for _ in range(2)}
    assert len(scores) == 1
    assert not hasattr(labeller, "transduction_")


@pytest.mark.parametrize("codes", [[0, 1, -1], [-1, -1, -1]])
def test_single_labels_have_no_score(codes: list[int]) -> None:
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    assert held_out_accuracy(labeller, complete(3), np.array(codes)) is None


def test_a_graph_of_another_size_raises() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        held_out_accuracy(GraphTransduction(affinity="precomputed", device="cpu"), complete(3), np.array([0, 0, 1, 1]))


def test_cross_validation_passes_balance_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    real = module.fit_labeller
    monkeypatch.setattr(
        module, "fit_labeller", lambda *args, balance: (calls.append(balance), real(*args, balance=balance))[1]
    )
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    for balance in (False, True):
        held_out_accuracy(labeller, complete(4), np.array([0, 0, 1, 1]), balance=balance)
    assert calls == [False, False, True, True]  # two labels per class make two folds


@pytest.mark.parametrize(
    ("before", "n_labels", "minimum"),
    [
        (25, 50, 15),  # standard error of the accuracy 0.07, of the difference 0.1
        (50, 50, 48),
        (250, 250, 248),
    ],
)
def test_a_difference_above_two_standard_errors_is_significant(before: int, n_labels: int, minimum: int) -> None:
    found = [
        is_significantly_lower(count / n_labels, before / n_labels, n_labels)
        for count in (n_labels, before, minimum, minimum - 1)
    ]
    assert found == [False, False, False, True]


def test_the_only_label_of_a_class_is_never_hidden() -> None:
    assert count_held_out(np.array([0, 0, 1, 2, 2, 2, -1, -1])) == 5
    assert count_held_out(np.array([0, 1, -1])) == 0
