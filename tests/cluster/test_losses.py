from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from entourage.cluster.losses import assignment_loss, center_loss, count_loss, pair_weights, pairwise_loss, total_loss
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.options import LossOptions
from entourage.cluster.sampling.episodes import Episode

LABELS = torch.tensor([[0, 0, 1, 2, 1], [0, 0, 0, 0, 0]])


def episode(known: Tensor | None = None) -> Episode:
    full = Episode.of_labels(torch.zeros(2, 5, 1), LABELS)
    return Episode(full.x, full.same, known, full.k, full.labels)


def leaf(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def assert_same_with_gradients(ours: Tensor, expected: Tensor, x: Tensor) -> None:
    near = {"rtol": 1e-5, "atol": 1e-6}  # probabilities are bounded by 1e-7 and 1 - 1e-7
    torch.testing.assert_close(ours, expected, **near)
    (mine,) = torch.autograd.grad(ours, x, retain_graph=True)  # both may share a graph
    (theirs,) = torch.autograd.grad(expected, x)
    assert mine.abs().max() > 0
    torch.testing.assert_close(mine, theirs, **near)


def test_pair_weights_match_the_appendix() -> None:
    together, apart = pair_weights(0.2)
    assert together + apart == pytest.approx(2)
    assert together / apart == pytest.approx(math.sqrt(0.8) / math.sqrt(0.2))
    assert pair_weights(0.5) == pytest.approx((1, 1))
    assert pair_weights(1.0) == (0, 2)
    with pytest.raises(ValueError, match=r"phi is 1\.2; expected a probability, from 0 to 1"):
        pair_weights(1.2)


def explicit_loss(p: Tensor, phi: float, pairs: list[tuple[int, int, int]]) -> Tensor:
    c = 2 / (math.sqrt(1 - phi) + math.sqrt(phi))
    total = torch.zeros((), dtype=p.dtype)
    for s, i, j in pairs:
        y = float(LABELS[s, i] == LABELS[s, j])
        total = total - c * math.sqrt(1 - phi) * y * p[s, i, j].log()
        total = total - c * math.sqrt(phi) * (1 - y) * (1 - p[s, i, j]).log()
    return total / len(pairs)


ALL_PAIRS = [(s, i, j) for s in range(2) for i in range(5) for j in range(i + 1, 5)]


def test_assignment_loss_matches_the_appendix() -> None:
    p = leaf(2, 5, 5)
    assert_same_with_gradients(assignment_loss(p, episode(), 0.3), explicit_loss(p, 0.3, ALL_PAIRS), p)


def test_unknown_pairs_are_ignored() -> None:
    known = torch.ones(2, 5, 5, dtype=torch.bool)
    for i, j in ((0, 1), (2, 4), (1, 3)):
        known[0, i, j] = known[0, j, i] = False
    p = leaf(2, 5, 5)
    pairs = [(s, i, j) for s, i, j in ALL_PAIRS if known[s, i, j]]
    assert_same_with_gradients(assignment_loss(p, episode(known), 0.3), explicit_loss(p, 0.3, pairs), p)
    nothing = torch.zeros(2, 5, 5, dtype=torch.bool)
    assert assignment_loss(p, episode(nothing), 0.3).item() == 0


@pytest.mark.parametrize("certain", [1.0, 1.0 + 2e-6])  # a sum of float32 probabilities may be a little more than 1
def test_the_assignment_loss_of_certain_predictions_has_a_gradient(certain: float) -> None:
    prediction = certain * (1 - episode().same.float())
    prediction.requires_grad_()
    loss = assignment_loss(prediction, episode(), 0.3)
    loss.backward()
    assert loss.isfinite()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()
    upper = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert (prediction.grad[:, upper] != 0).all()  # certain, wrong predictions have a gradient


def test_the_pairwise_loss_is_the_same_cross_entropy() -> None:
    d = leaf(2, 5, 5)
    assert_same_with_gradients(pairwise_loss(d, episode(), 0.3), explicit_loss((-d).exp(), 0.3, ALL_PAIRS), d)
    zero = torch.zeros(2, 5, 5, requires_grad=True)
    loss = pairwise_loss(zero, episode(), 0.3)
    loss.backward()
    assert loss.isfinite()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


def test_the_count_loss_is_the_cross_entropy_of_known_counts() -> None:
    for k in (torch.tensor([2, 4, 1]), torch.tensor([2, 0, 1])):
        count = leaf(3, 4)
        log = count.log_softmax(-1)
        expected = -torch.stack([log[s, k[s] - 1] for s in range(3) if k[s]]).mean()
        assert_same_with_gradients(count_loss(log, k), expected, count)
    assert count_loss(log, torch.tensor([0, 0, 0])).item() == 0


def test_the_centre_loss_is_the_mean_squared_error_to_the_centres() -> None:
    x = leaf(2, 5, 3)
    total = torch.zeros((), dtype=x.dtype)
    for s in range(2):
        for i in range(5):
            center = torch.stack([x[s, j] for j in range(5) if LABELS[s, j] == LABELS[s, i]]).mean(0)
            total = total + ((x[s, i] - center) ** 2).sum()
    assert_same_with_gradients(center_loss(x, episode()), total / (2 * 5 * 3), x)


def test_the_centre_of_unknown_items_is_the_item_itself() -> None:
    known = torch.eye(5, dtype=torch.bool).expand(2, 5, 5)
    assert center_loss(leaf(2, 5, 3), episode(known)).item() == 0


def test_total_loss_is_the_weighted_sum() -> None:
    torch.manual_seed(0)
    assignment = torch.rand(2, 5, 3, 3).tril().clamp_min(0)
    assignment = assignment / assignment.sum(-1, keepdim=True)
    prediction = SetPrediction(torch.randn(2, 3).log_softmax(-1), assignment, torch.randn(2, 5, 2), torch.rand(2, 5, 5))
    terms = [
        count_loss(prediction.count, episode().k),
        assignment_loss(prediction.same(), episode(), 0.4),
        center_loss(prediction.embedding, episode()),
        pairwise_loss(prediction.distance, episode(), 0.4),  # type: ignore[arg-type]
    ]
    total, named = total_loss(prediction, episode(), 0.4, LossOptions(assignment=5, center=0.5, pairwise=2))
    torch.testing.assert_close(total, terms[0] + 5 * terms[1] + 0.5 * terms[2] + 2 * terms[3])
    assert list(named) == ["count", "assignment", "centre", "pairwise"]
    thesis, named = total_loss(prediction, episode(), 0.4, LossOptions(pairwise=0))
    torch.testing.assert_close(thesis, terms[0] + 5 * terms[1])
    assert list(named) == ["count", "assignment"]
