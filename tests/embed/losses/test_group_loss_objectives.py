"""Terms of the Group Loss, compared with losses of other libraries and with sums."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import ProxyAnchorLoss
from torch import Tensor

from entourage.embed.losses.group_loss import add_floor, agreement_loss, label_loss, proxy_loss

LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


@pytest.fixture
def log_x() -> Tensor:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logits.log_softmax(dim=1).requires_grad_()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_loss_equals_the_cross_entropy_of_torch(log_x: Tensor, smoothing: float) -> None:
    expected = F.cross_entropy(log_x, LABELS, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(label_loss(log_x, LABELS, smoothing), expected)


def test_agreement_is_the_mean_divergence_of_ordered_pairs(log_x: Tensor) -> None:
    takes_part = torch.tensor([True, True, True, True, True, False])
    pairs = [(0, 2), (2, 0), (1, 4), (4, 1)]
    expected = sum(F.kl_div(log_x[j], log_x[i], log_target=True, reduction="sum") for i, j in pairs) / len(pairs)
    actual = agreement_loss(log_x, LABELS, takes_part)
    torch.testing.assert_close(actual, expected)
    slopes = [torch.autograd.grad(loss, log_x)[0] for loss in (actual, expected)]
    torch.testing.assert_close(*slopes)
    assert (slopes[0][[3, 5]] == 0).all()


def test_equal_distributions_and_single_samples_have_no_agreement_loss(log_x: Tensor) -> None:
    same = log_x[:1].expand(6, 3)
    assert agreement_loss(same, LABELS, torch.ones(6, dtype=torch.bool)).item() == pytest.approx(0, abs=1e-15)
    assert agreement_loss(log_x, torch.arange(6), torch.ones(6, dtype=torch.bool)).item() == 0


def test_masked_samples_may_be_one_hot(log_x: Tensor) -> None:
    certain = torch.tensor([0.0, -math.inf, -math.inf], dtype=torch.float64)
    mixed = torch.cat([log_x[:5], certain[None]])
    takes_part = torch.arange(6) < 5
    loss = agreement_loss(mixed, LABELS, takes_part)
    torch.testing.assert_close(loss, agreement_loss(log_x, LABELS, takes_part))
    assert torch.autograd.grad(loss, log_x)[0].isfinite().all()


def test_floor_is_added_before_the_logarithm(log_x: Tensor) -> None:
    torch.testing.assert_close(add_floor(log_x, 0.01), (log_x.exp() + 0.01).log())
    assert add_floor(log_x, 0.0) is log_x
    lost = torch.tensor([-math.inf, -500.0, 0.0], requires_grad=True)
    (slope,) = torch.autograd.grad(add_floor(lost, 1e-12).sum(), lost)
    torch.testing.assert_close(slope, torch.tensor([0.0, 0.0, 1.0]))


def test_proxy_loss_of_scaled_cosines_is_proxy_anchor() -> None:
    torch.manual_seed(0)
    embeddings = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    peer = ProxyAnchorLoss(num_classes=5, embedding_size=7, margin=0.1, alpha=32).double()
    cosines = F.normalize(embeddings, dim=1) @ F.normalize(peer.proxies, dim=1).T  # (6, 5)
    actual, expected = proxy_loss(32 * cosines, LABELS), peer(embeddings, LABELS)
    torch.testing.assert_close(actual, expected)
    slopes = [torch.autograd.grad(loss, (embeddings, peer.proxies), retain_graph=True) for loss in (actual, expected)]
    torch.testing.assert_close(slopes[0], slopes[1])


def test_logits_beyond_the_margin_have_nearly_no_loss() -> None:
    logits = (60 * F.one_hot(LABELS, 3) - 30).double()
    assert proxy_loss(logits, LABELS) < 1e-10
    assert proxy_loss(-logits, LABELS) > 60
