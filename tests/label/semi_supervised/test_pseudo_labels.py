import warnings
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy import sparse

from entourage.label import GraphTransduction
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels


def test_from_labeller_copies_the_result() -> None:
    """A chain of six points, and two unreached points; the classes are not their indices."""
    w = sparse.block_diag([np.eye(6, k=1) + np.eye(6, k=-1), np.eye(2, k=1) + np.eye(2, k=-1)]).tocsr()
    y = np.array(["pear", "", "", "", "", "fig", "", ""], dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        game = GraphTransduction(affinity="precomputed", device="cpu").fit(w, y)
    found = PseudoLabels.from_labeller(game)
    assert found.codes.dtype == np.int64
    assert found.codes.tolist() == [1, 1, 1, 0, 0, 0, -1, -1]  # classes are sorted: fig, pear
    names = np.append(game.classes_, "")
    assert names[found.codes].tolist() == game.transduction_.tolist()
    assert found.confidence[-2:].tolist() == [0, 0]
    assert found.confidence[[0, 5]].tolist() == [1, 1]  # given labels have confidence 1
    assert np.array_equal(found.confidence[1:5], game.agreement_[1:5])  # confidences of the same mean
    assert np.array_equal(found.distributions, game.label_distributions_)
    for mode in ("hard", "soft", "weighted"):
        assert found.targets(mode)[1][-2:].tolist() == [0, 0]
    torch.testing.assert_close(found.soft_targets()[-2:], torch.full((2, 2), 0.5))


def test_targets_are_labels_distributions_or_labels_with_weights(toys: ModuleType) -> None:
    found = toys.pseudo_labels([2, -1, 0], [0.5, 0.0, 1.0])
    one_hot = torch.tensor([[0.0, 0, 1], [0, 0, 0], [1, 0, 0]])
    hard, hard_weights = found.targets("hard")
    assert torch.equal(hard, one_hot)
    assert hard_weights.tolist() == [1, 0, 1]
    soft, soft_weights = found.targets("soft")
    torch.testing.assert_close(soft, torch.tensor([[0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3], [0.8, 0.1, 0.1]]))
    assert soft_weights.tolist() == [1, 0, 1]
    weighted, weights = found.targets("weighted")
    assert torch.equal(weighted, one_hot)
    assert weights.tolist() == [0.25, 0, 1]
    assert {t.dtype for t in (hard, hard_weights, soft, soft_weights, weighted, weights)} == {torch.float32}


def test_soft_targets_have_the_confidence_at_the_label(toys: ModuleType) -> None:
    found = toys.pseudo_labels([2, -1, 0, 1], [0.5, 0.0, 1.0, 0.2])
    third = [1 / 3, 1 / 3, 1 / 3]  # also for a confidence below chance
    torch.testing.assert_close(found.soft_targets(), torch.tensor([[0.25, 0.25, 0.5], third, [1.0, 0.0, 0.0], third]))


def test_the_digest_depends_on_labels_and_game(toys: ModuleType) -> None:
    found = toys.pseudo_labels([0, 1], [1, 1])
    assert len({replace(found, game_digest=game).digest() for game in ("", "one", "another")}) == 3
    digests = {
        toys.pseudo_labels(codes, confidence).digest() for codes, confidence in (([0, 1], [1, 1]), ([0, 1], [1, 0.5]))
    }
    assert (
        len(digests | {toys.pseudo_labels([1, 0], [1, 1]).digest(), toys.pseudo_labels([0, -1], [1, 0]).digest()}) == 3
    )


def test_mismatched_shapes_raise(toys: ModuleType) -> None:
    found = toys.pseudo_labels([2, 0], [0.5, 1.0])
    with pytest.raises(ValueError, match="pseudo_label_mode is 'blind'; expected one of hard, soft, weighted"):
        found.targets("blind")
    with pytest.raises(ValueError, match=r"pseudo_labels: .* \(2, 3\); expected \(4, 3\)"):
        found.check(4, 3)
    with pytest.raises(ValueError, match=r"confidences of shape \(3,\) for 2 labels; expected \(2, m\) and \(2,\)"):
        PseudoLabels(np.zeros(2, dtype=np.int64), np.ones((2, 2)), np.ones(3))
    found.check(2, 3)
