from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits

from entourage.label import GraphTransduction
from entourage.label.incremental import IncrementalTransduction


@pytest.fixture(scope="module")
def digits() -> tuple[sparse.csr_matrix, NDArray[np.int64]]:
    """The graph of scikit-learn's digits, and their classes."""
    X, classes = load_digits(return_X_y=True)
    y = np.where(np.arange(len(classes)) < 40, classes, -1)
    return GraphTransduction().fit(X / 16, y).graph_, classes


def labelled(graph: sparse.csr_matrix, classes: NDArray[np.int64], items: NDArray[np.int64]) -> IncrementalTransduction:
    game = IncrementalTransduction(graph, 10)
    for item in items:
        game.set_labels([item], int(classes[item]))
    return game


def complete(graph: sparse.csr_matrix, given: NDArray[np.int64]) -> GraphTransduction:
    return GraphTransduction().fit_graph(graph, given)


def test_labels_added_one_by_one_give_those_of_graph_transduction(
    digits: tuple[sparse.csr_matrix, NDArray[np.int64]],
) -> None:
    graph, classes = digits
    game = IncrementalTransduction(graph, 10)
    for item in np.random.default_rng(0).permutation(len(classes))[:30]:
        game.set_labels([item], int(classes[item]))
        found, expected = game.play(), complete(graph, game.given)
        assert (found.codes == expected.transduction_).mean() > 0.995  # sums are rounded in another order
        same = found.codes == expected.transduction_
        np.testing.assert_allclose(found.confidence[same], expected.confidence_[same], atol=0.1)
        assert np.abs(found.confidence - expected.confidence_).mean() < 2e-3


def test_removed_labels_leave_no_trace(digits: tuple[sparse.csr_matrix, NDArray[np.int64]]) -> None:
    graph, classes = digits
    game = labelled(graph, classes, np.arange(20))
    before = game.play()
    game.set_labels([100, 200], 3)
    assert (game.play().codes[[100, 200]] == 3).all()
    game.set_labels([100, 200], -1)
    after = game.play()
    assert (after.codes == before.codes).mean() > 0.995
    assert (game.given[[100, 200]] == -1).all()


def test_classes_are_added_and_merged(digits: tuple[sparse.csr_matrix, NDArray[np.int64]]) -> None:
    graph, classes = digits
    game = IncrementalTransduction(graph)
    assert (game.play().codes == -1).all()
    first, second, third = (game.add_class() for _ in range(3))
    for item in range(60):
        game.set_labels([item], int(classes[item]) % 3)
    game.play()
    game.merge_classes(second, first)
    found = game.play()
    assert set(found.codes) == {first, third}
    assert not (game.given == second).any()
    expected = complete(graph, game.given)
    assert (found.codes == expected.transduction_).mean() > 0.995


def test_components_without_labels_stay_undecided(
    two_components: tuple[sparse.csr_matrix, NDArray[np.int64]],
) -> None:
    graph, _ = two_components
    game = IncrementalTransduction(graph, 2)
    game.set_labels([0], 0)
    game.set_labels([4], 1)
    found = game.play()
    assert (found.codes[5:] == -1).all()
    assert (found.confidence[5:] == 0).all()
    game.set_labels([7], 1)
    assert (game.play().codes[5:] == 1).all()


@pytest.mark.parametrize(("items", "code", "expected"), [([24], 0, "items"), ([-1], 0, "items"), ([0], 2, "code")])
def test_unknown_items_and_classes_raise(
    graph: NDArray[np.float64], items: list[int], code: int, expected: str
) -> None:
    game = IncrementalTransduction(sparse.csr_matrix(graph.astype(np.float32)), 2)
    with pytest.raises(ValueError, match=f"{expected}.*expected"):
        game.set_labels(items, code)
