"""The Group Loss compared with a direct implementation and closed forms, and its invariances."""

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.embed.batches import CLASSES, LABELS, batch
from torch import Tensor

from entourage.embed import GroupLoss, GroupLossOptions
from entourage.embed.losses.batch_graph import batch_similarity
from entourage.embed.losses.group_loss import proxy_loss, refine_labels, sample_anchors
from entourage.embed.losses.options import PRESETS, loss_preset


def restated(e: Tensor, z: Tensor, y: Tensor, anchors: Tensor, o: GroupLossOptions) -> Tensor:
    """Algorithm 1 sample by sample, with probabilities instead of their logarithms."""
    n = len(e)
    rows = [row - row.mean() if o.similarity == "pearson" else row for row in e]
    w = torch.stack([torch.stack([a @ b / (a.norm() * b.norm()) for b in rows]) for a in rows])
    w = (w.clamp_min(0) if o.negatives == "clamp" else w - w.min().detach().clamp_max(0)) ** o.sharpness
    if o.zero_diagonal:
        w = w * (1 - torch.eye(n, dtype=w.dtype))
    x = torch.stack(
        [F.one_hot(y[i], CLASSES).to(e) if anchors[i] else (z[i] / o.temperature).softmax(0) for i in range(n)]
    )
    for _ in range(o.iterations):
        payoff = torch.stack([x[i] * sum(w[i, j] * x[j] for j in range(n)) for i in range(n)])
        x = payoff / payoff.sum(dim=1, keepdim=True)
    loss_rows = range(n) if o.count_anchors else [i for i in range(n) if not anchors[i]]
    game = torch.stack([-(x[i, y[i]] + o.floor).log() for i in loss_rows]).mean()
    present = y.unique().tolist()
    pull = sum(torch.log(1 + torch.exp(3.2 - z[y == c, c]).sum()) for c in present) / len(present)
    push = sum(torch.log(1 + torch.exp(3.2 + z[y != c, c]).sum()) for c in range(CLASSES)) / CLASSES
    return game + o.cross_entropy_weight * F.cross_entropy(z, y) + o.proxy_weight * (pull + push)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"similarity": "cosine"},
        {"negatives": "shift"},
        {"iterations": 3},
        {"sharpness": 2.5},
        {"proxy_weight": 0.5},
    ],
)
@pytest.mark.parametrize("name", PRESETS)
def test_value_and_gradients_equal_a_direct_implementation(name: str, changes: dict[str, Any]) -> None:
    options = replace(loss_preset(name), **changes)
    e, z = batch()
    torch.manual_seed(1)
    random = options.anchor_choice == "random"
    anchors, _ = sample_anchors(LABELS, options.anchors_per_class, random=random)
    expected = restated(e, z, LABELS, anchors, options)
    torch.manual_seed(1)
    actual = GroupLoss(**asdict(options))(e, z, LABELS)
    torch.testing.assert_close(actual, expected)
    slopes = [torch.autograd.grad(loss, (e, z)) for loss in (actual, expected)]
    torch.testing.assert_close(slopes[0], slopes[1])
    assert slopes[0][0].abs().max() > 1e-6


@pytest.mark.parametrize("n_iter", [0, 1, 3])
def test_each_iteration_with_the_identity_doubles_the_logits(n_iter: int) -> None:
    # W = identity: x <- x^2 / sum x^2, and softmax(z)^2 is softmax(2 z) up to a factor.
    z = batch()[1] / 8  # rounding leaves 1e-17 off the diagonal of W, far below all probabilities
    noise = torch.randn(16, 20, generator=torch.Generator().manual_seed(0))
    e = torch.linalg.qr(torch.cat([torch.ones(1, 20), noise]).double().T)[0].T[1:]  # (16, 20), centred, orthogonal
    loss = GroupLoss.from_preset("thesis", iterations=n_iter, temperature=1, anchors_per_class=0, zero_diagonal=False)
    torch.testing.assert_close(loss(e, z, LABELS), F.cross_entropy(2**n_iter * z, LABELS))


def test_without_iterations_it_is_the_cross_entropy_at_its_temperature() -> None:
    e, z = batch()
    loss = GroupLoss.from_preset("thesis", iterations=0, temperature=3, anchors_per_class=0)
    torch.testing.assert_close(loss(e, z, LABELS), F.cross_entropy(z / 3, LABELS))


def test_identical_embeddings_with_one_anchor_have_a_closed_form() -> None:
    # All similarities are 1: the payoff of a sample is 1 for its label (from the anchor) plus q_h of the other sample.
    e = torch.tensor([[1.0, 2.0, 4.0]]).double().expand(3, 3)
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]).double()
    p, q = z[1].softmax(0), z[2].softmax(0)
    one, two = p * (torch.tensor([1.0, 0.0]) + q), q * (torch.tensor([1.0, 0.0]) + p)
    expected = -((one[0] / one.sum()).log() + (two[0] / two.sum()).log()) / 2
    loss = GroupLoss.from_preset("thesis", iterations=1, anchors_per_class=1, anchor_choice="first")
    torch.testing.assert_close(loss(e, z, torch.tensor([0, 0, 0])), expected)


@pytest.mark.parametrize("name", PRESETS)
def test_loss_is_invariant_to_scale_and_shift_of_embeddings(name: str) -> None:
    e, z = batch()
    rows = torch.linspace(0.1, 50, 16, dtype=torch.float64)[:, None]
    loss = GroupLoss.from_preset(name, anchor_choice="first").eval()
    torch.testing.assert_close(loss(rows * e - 3 * rows, z, LABELS), loss(e, z, LABELS))
    shifted = GroupLoss.from_preset(name, anchor_choice="first", similarity="cosine")
    assert not torch.allclose(shifted(e + 3, z, LABELS), shifted(e, z, LABELS))


@pytest.mark.parametrize("name", PRESETS)
def test_loss_is_invariant_to_the_order_of_the_batch(name: str) -> None:
    e, z = batch()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    loss = GroupLoss.from_preset(name, anchors_per_class=0).eval()
    torch.testing.assert_close(loss(e[order], z[order], LABELS[order]), loss(e, z, LABELS))


@pytest.mark.parametrize("objective", ["labels", "agreement"])
@pytest.mark.parametrize("name", ["thesis", "original-cub"])
def test_anchors_have_zero_loss(name: str, objective: str) -> None:
    options = replace(loss_preset(name), objective=objective, anchor_choice="first")  # type: ignore[arg-type]
    e, z = batch()
    anchors, _ = sample_anchors(LABELS, options.anchors_per_class, random=False)
    game, *_ = GroupLoss(**asdict(options)).terms(e, z, LABELS)
    to_embeddings, to_logits = torch.autograd.grad(game, (e, z))
    assert (to_logits[anchors] == 0).all()
    assert (to_logits[~anchors] != 0).any(dim=1).all()
    assert (to_embeddings[anchors] != 0).any(dim=1).all()  # they still affect the other samples
    log_x = refine_labels(batch_similarity(e, CLASSES, options), z, LABELS, anchors, options)
    assert torch.equal(log_x[anchors].exp(), F.one_hot(LABELS, CLASSES).double()[anchors])


def test_agreement_is_the_divergence_within_classes_after_the_dynamics() -> None:
    e, z = batch()
    loss = GroupLoss.from_preset("thesis", objective="agreement", anchor_choice="first")
    anchors, _ = sample_anchors(LABELS, 2, random=False)
    x = refine_labels(batch_similarity(e, CLASSES, loss.options), z, LABELS, anchors, loss.options).exp()
    free = [i for i in range(16) if not anchors[i]]
    pairs = [(i, j) for i in free for j in free if i != j and LABELS[i] == LABELS[j]]
    expected = sum((x[i] * (x[i] / x[j]).log()).sum() for i, j in pairs) / len(pairs)
    torch.testing.assert_close(loss(e, z, LABELS), expected)


def test_loss_is_the_weighted_sum_of_its_terms() -> None:
    e, z = batch()
    loss = GroupLoss(cross_entropy_weight=0.3, proxy_weight=0.2, label_smoothing=0.2, anchor_choice="first")
    game, cross_entropy, proxy = loss.terms(e, z, LABELS)
    torch.testing.assert_close(loss(e, z, LABELS), game + 0.3 * cross_entropy + 0.2 * proxy)
    torch.testing.assert_close(proxy, proxy_loss(z, LABELS))
    assert GroupLoss().terms(e, z, LABELS).proxy == 0
    torch.testing.assert_close(cross_entropy, F.cross_entropy(z, LABELS, label_smoothing=0.2))


def test_label_smoothing_applies_to_the_dynamics_too() -> None:
    e, z = batch()
    options = GroupLossOptions(label_smoothing=0.2, anchors_per_class=0)
    log_x = refine_labels(batch_similarity(e, CLASSES, options), z, LABELS, torch.zeros(16, dtype=torch.bool), options)
    expected = F.cross_entropy(log_x, LABELS, label_smoothing=0.2)
    torch.testing.assert_close(GroupLoss(**asdict(options)).terms(e, z, LABELS).game, expected)


def test_class_vectors_are_anchors_of_their_class() -> None:
    # Equals a batch with the class vectors appended as anchors that do not contribute to the loss.
    e, z = batch()
    vectors = torch.randn(CLASSES, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    loss = GroupLoss.from_preset("thesis", class_players=1.0, anchors_per_class=0)
    game = loss(e, z, LABELS, vectors)
    all_rows, labels = torch.cat([e, vectors]), torch.cat([LABELS, torch.arange(CLASSES)])
    anchors = torch.arange(16 + CLASSES) >= 16
    thesis = loss_preset("thesis")
    log_x = refine_labels(
        batch_similarity(all_rows, CLASSES, thesis), torch.cat([z, z[:CLASSES]]), labels, anchors, thesis
    )
    expected = F.nll_loss(log_x[:16], LABELS)
    torch.testing.assert_close(game, expected)
    for actual, right in zip(*(torch.autograd.grad(f, (e, z, vectors)) for f in (game, expected)), strict=True):
        torch.testing.assert_close(actual, right)


def test_earlier_batches_are_anchors_without_gradients() -> None:
    e, z = batch()
    loss = GroupLoss.from_preset("thesis", memory=1, anchors_per_class=0)
    alone = loss(e[:8], z[:8], LABELS[:8])
    memory_loss = loss(e[8:], z[8:], LABELS[8:])
    order = torch.cat([torch.arange(8, 16), torch.arange(8)])
    thesis = loss_preset("thesis")
    log_x = refine_labels(
        batch_similarity(e[order], CLASSES, thesis), z[order], LABELS[order], torch.arange(16) >= 8, thesis
    )
    torch.testing.assert_close(memory_loss, F.nll_loss(log_x[:8], LABELS[8:]))
    assert (torch.autograd.grad(memory_loss, e)[0][:8] == 0).all()
    assert not torch.allclose(loss(e[:8], z[:8], LABELS[:8]), alone)
    torch.testing.assert_close(loss.eval()(e[:8], z[:8], LABELS[:8]), alone)  # evaluation mode ignores the memory
    loss.train().memory.clear()
    torch.testing.assert_close(loss(e[:8], z[:8], LABELS[:8]), alone)


def test_terms_match_the_loss_and_update_the_memory_on_request() -> None:
    e, z = batch()
    loss = GroupLoss(anchor_choice="first", memory=1)
    loss(e[:8], z[:8], LABELS[:8])
    evaluated = [loss.total(loss.terms(e[8:], z[8:], LABELS[8:])) for _ in range(2)]
    torch.testing.assert_close(*evaluated)
    torch.testing.assert_close(evaluated[0], loss(e[8:], z[8:], LABELS[8:]))
    before = loss.terms(e[:8], z[:8], LABELS[:8], update_memory=True).game
    assert not torch.allclose(loss.terms(e[:8], z[:8], LABELS[:8]).game, before)


def test_training_with_the_dynamics_alone_separates_classes() -> None:
    # The logits are constant: only the embeddings can lower the loss.
    torch.manual_seed(0)
    e, z = torch.randn(16, 8).requires_grad_(), torch.zeros(16, CLASSES)
    loss = GroupLoss.from_preset("thesis", iterations=1, anchors_per_class=1)
    optimiser = torch.optim.Adam([e], lr=0.05)
    right = []
    for _ in range(100):
        nearest = torch.corrcoef(e.detach()).fill_diagonal_(-1).argmax(dim=1)
        right.append(float((LABELS[nearest] == LABELS).float().mean()))
        optimiser.zero_grad()
        loss(e, z, LABELS).backward()
        optimiser.step()
    assert right[0] < 0.5
    assert right[-1] == 1
