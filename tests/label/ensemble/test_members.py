"""Members of `AutoTransduction`: their names, the folds of hidden labels, and the mean of their distributions."""

import numpy as np

from entourage.label.ensemble.members import MemberSpec, hidden_folds, list_members, mix


def test_every_label_of_a_class_with_two_is_hidden_once() -> None:
    codes = np.array([0, 0, 0, 1, -1, 2, 2, -1])
    folds = hidden_folds(codes, 5, 0)
    assert sorted(np.concatenate(folds).tolist()) == [0, 1, 2, 5, 6]
    for fold in folds:
        left = np.delete(codes, fold)
        assert {0, 1, 2} <= set(left.tolist())
    assert hidden_folds(np.array([0, 1, -1]), 5, 0) == []


def test_members_and_their_names() -> None:
    specs = list_members([["given", "standard", "rank"], ["given"]], [10, 0], 1000, with_hidden=True)
    assert [spec.name for spec in specs if spec.kind == "trees"] == ["trees, standard columns"]
    assert specs[-1] == MemberSpec("game", ((0, "given"), (1, "given")))
    assert specs[-1].name == "game, all feature sets"
    assert not any(spec.kind == "poisson" for spec in specs)
    unselected = list_members([["given", "standard", "rank"]], [10], 50, with_hidden=False)
    assert {view for spec in unselected for _, view in spec.views if spec.has_graph} == {"given", "standard"}
    mixtures = [spec.name for spec in unselected if spec.kind == "mixture"]
    assert mixtures[0] == "Gaussian mixture, standard columns, shrinkage 0.2"
    assert len(mixtures) == 4
    assert not any(spec.kind == "mixture" for spec in list_members([["given"]], [0], 50, with_hidden=True))  # sparse
    assert not any(spec.n_neighbors for spec in unselected)


def test_members_without_an_answer_are_left_out_of_the_mean() -> None:
    mixed = mix([np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.5, 0.5], [0.2, 0.8]])], [0.5, 0.5])
    np.testing.assert_allclose(mixed, [[0.75, 0.25], [0.2, 0.8]])
