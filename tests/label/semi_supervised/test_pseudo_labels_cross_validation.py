import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from entourage.label import GraphTransduction
from entourage.label.base import GraphLabeller, TransductionProblem
from entourage.label.semi_supervised import pseudo_labels as validate
from entourage.label.semi_supervised.pseudo_labels import (
    FOLDS,
    count_held_out,
    held_out_accuracy,
    is_significantly_lower,
)
from entourage.label.targets import Floats

SEEN: list[NDArray[np.int64]] = []


class Spy(GraphLabeller):
    """Answers the first class everywhere and remembers which labels it was shown."""

    def _distribute(self, problem: TransductionProblem) -> Floats:
        SEEN.append(problem.targets.codes.copy())
        x = np.full(problem.initial.shape, 0.1)
        x[:, 0] = 0.9
        return np.where(problem.targets.labelled[:, None], problem.initial, x)


def complete(n: int) -> sparse.csr_matrix:
    return sparse.csr_matrix(np.ones((n, n)) - np.eye(n))


def test_each_label_is_hidden_once_and_no_class_altogether() -> None:
    SEEN.clear()
    codes = np.array([0] * 7 + [1] * 2 + [2] + [-1] * 5)
    score = held_out_accuracy(Spy(affinity="precomputed", classes=np.arange(3)), complete(15), codes)
    assert len(SEEN) == FOLDS
    hidden = np.stack([(shown == -1) & (codes >= 0) for shown in SEEN])  # (folds, n)
    assert hidden.sum(axis=0).tolist() == [1] * 9 + [0] * 6  # the only label of the last class is never hidden
    for shown, gone in zip(SEEN, hidden, strict=True):
        assert np.array_equal(shown[~gone], codes[~gone])
        assert set(shown[shown >= 0]) == {0, 1, 2}
    assert score == pytest.approx(7 / 9)  # the first class is always right, the second always wrong


def test_hidden_labels_that_a_graph_gives_away_are_found() -> None:
    w = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 2).tocsr()
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    right = np.array([0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1])
    assert held_out_accuracy(labeller, w, right) == 1.0
    wrong = np.array([0, 0, 0, 1, -1, -1, 1, 1, 1, 0, -1, -1])  # one in four contradicts its neighbours
    assert held_out_accuracy(labeller, w, wrong) == pytest.approx(6 / 8)


def test_a_prior_that_rules_a_label_out_makes_it_hard_to_find() -> None:
    w = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 2).tocsr()
    codes = np.array([0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1])
    prior = np.full((12, 2), 0.5)
    prior[0] = (1e-9, 1.0)  # nearly: a prior of 0 would contradict the label itself
    labeller = GraphTransduction(affinity="precomputed", device="cpu", max_iter=3, tol=None)
    assert held_out_accuracy(labeller, w, codes, prior) == pytest.approx(5 / 6)


def test_what_no_label_reaches_is_not_found_and_nobody_is_warned() -> None:
    w = sparse.csr_matrix((4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labeller = GraphTransduction(affinity="precomputed", device="cpu")
        assert held_out_accuracy(labeller, w, np.array([0, 0, 1, 1])) == 0.0


def test_the_labeller_is_left_unfitted_and_the_answer_is_always_the_same() -> None:
    rng = np.random.default_rng(0)
    w = sparse.csr_matrix(np.triu(rng.random((30, 30)), 1))
    codes = np.where(np.arange(30) < 20, rng.integers(0, 3, 30), -1)
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    scores = {held_out_accuracy(labeller, w + w.T, codes) for _ in range(2)}
    assert len(scores) == 1
    assert not hasattr(labeller, "transduction_")


@pytest.mark.parametrize("codes", [[0, 1, -1], [-1, -1, -1]])
def test_single_labels_tell_nothing(codes: list[int]) -> None:
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    assert held_out_accuracy(labeller, complete(3), np.array(codes)) is None


def test_a_graph_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        held_out_accuracy(GraphTransduction(affinity="precomputed", device="cpu"), complete(3), np.array([0, 0, 1, 1]))


def test_hidden_labels_are_found_as_the_game_would(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    real = validate.fit_labeller
    monkeypatch.setattr(
        validate, "fit_labeller", lambda *told, balance: (asked.append(balance), real(*told, balance=balance))[1]
    )
    labeller = GraphTransduction(affinity="precomputed", device="cpu")
    for balance in (False, True):
        held_out_accuracy(labeller, complete(4), np.array([0, 0, 1, 1]), balance=balance)
    assert asked == [False, False, True, True]  # two labels a class are two folds


@pytest.mark.parametrize(
    ("before", "labels", "least"),
    [
        (25, 50, 15),  # a standard error of half of 50 is 0.07, and of a difference 0.1
        (50, 50, 48),
        (250, 250, 248),
    ],
)
def test_fewer_are_clearly_fewer_from_two_standard_errors_on(before: int, labels: int, least: int) -> None:
    found = [
        is_significantly_lower(count / labels, before / labels, labels) for count in (labels, before, least, least - 1)
    ]
    assert found == [False, False, False, True]


def test_labels_that_are_alone_in_their_class_are_never_hidden() -> None:
    assert count_held_out(np.array([0, 0, 1, 2, 2, 2, -1, -1])) == 5
    assert count_held_out(np.array([0, 1, -1])) == 0
