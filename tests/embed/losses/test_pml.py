"""Interface, training and formulas of the baseline losses."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.embed import BASELINE_LOSSES, GroupLoss, baseline_loss
from entourage.extras import MissingExtraError

LABELS = torch.arange(4).repeat_interleave(5)
pytestmark = pytest.mark.filterwarnings("ignore:.*")  # the library uses deprecated names of torch


@pytest.fixture(autouse=True)
def seed() -> None:
    pytest.importorskip("pytorch_metric_learning")
    torch.manual_seed(0)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(20, 8).requires_grad_(), torch.randn(20, 4).requires_grad_()


def gap(e: Tensor) -> float:
    """Return the mean cosine within classes minus that between classes."""
    cosine = F.normalize(e.detach()) @ F.normalize(e.detach()).T
    same = LABELS[:, None] == LABELS[None, :]
    return float(cosine[same & ~torch.eye(20, dtype=torch.bool)].mean() - cosine[~same].mean())


def test_all_losses_of_the_chapter_are_available() -> None:
    named = {"triplet", "lifted-structure", "n-pairs", "angular", "proxy-nca", "proxy-anchor", "multi-similarity"}
    assert named | {"soft-triple", "normalised-softmax", "cross-entropy"} == set(BASELINE_LOSSES)


@pytest.mark.parametrize("name", BASELINE_LOSSES)
def test_baseline_is_a_scalar_with_gradients_and_the_interface_of_the_group_loss(name: str) -> None:
    e, z = batch()
    loss = baseline_loss(name, 4, 8)
    value = loss(e, z, LABELS)
    assert value.ndim == GroupLoss()(e, z, LABELS).ndim == 0
    value.backward()
    used = z if name == "cross-entropy" else e
    assert used.grad is not None
    assert used.grad.isfinite().all()
    assert used.grad.abs().sum() > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in loss.parameters())
    assert torch.equal(value, loss(e, z, LABELS, torch.zeros(4, 8)))


def trained(name: str) -> tuple[Tensor, Tensor, torch.nn.Module]:
    """Return embeddings before and after 150 steps of a loss, and the trained loss."""
    e, z = batch()
    before = e.detach().clone()
    loss = baseline_loss(name, 4, 8)
    optimiser = torch.optim.Adam([{"params": [e]}, {"params": list(loss.parameters()), "lr": 0.1}], lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        loss(e, z, LABELS).backward()
        optimiser.step()
    return before, e.detach(), loss


@pytest.mark.parametrize("name", [name for name in BASELINE_LOSSES if name not in ("cross-entropy", "soft-triple")])
def test_training_increases_cosines_within_classes(name: str) -> None:
    before, after, _ = trained(name)
    assert gap(after) > gap(before) + 0.05


def test_soft_triple_assigns_each_sample_to_a_centre_of_its_class() -> None:
    _, e, loss = trained("soft-triple")
    assert torch.equal(loss.criterion.get_logits(e).argmax(dim=1), LABELS)
    with torch.no_grad():
        assert loss(e, torch.zeros(len(e), 4), LABELS) < 0.01


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor", "soft-triple", "normalised-softmax"])
def test_proxies_are_initialised_with_length_one(name: str) -> None:
    (proxies,) = baseline_loss(name, 50, 256).parameters()
    rows = proxies if proxies.shape[1] == 256 else proxies.T  # SoftTriple stores centres as columns
    torch.testing.assert_close(rows.norm(dim=1).mean(), torch.tensor(1.0), atol=0.05, rtol=0)  # 256 draws: 1 +- 0.044


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor", "soft-triple", "normalised-softmax"])
def test_proxies_stay_in_float32(name: str) -> None:
    e, z = batch()
    loss = baseline_loss(name, 4, 8)
    expected = loss(e.bfloat16().float(), z, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(e.bfloat16(), z, LABELS), expected)
    assert all(p.dtype == torch.float32 and p.numel() >= 32 for p in loss.parameters())


def test_proxy_anchor_equals_the_formula_of_the_paper() -> None:
    e, z = batch()
    loss = baseline_loss("proxy-anchor", 6, 8)  # two classes have no sample in the batch
    (proxies,) = loss.parameters()
    cosine = F.normalize(e) @ F.normalize(proxies).T  # (20, 6)
    positive = F.one_hot(LABELS, 6).bool()
    pull = (torch.where(positive, (-32 * (cosine - 0.1)).exp(), 0)).sum(dim=0)[:4]
    push = (torch.where(positive, 0, (32 * (cosine + 0.1)).exp())).sum(dim=0)
    torch.testing.assert_close(loss(e, z, LABELS), (1 + pull).log().sum() / 4 + (1 + push).log().sum() / 6)


def test_triplet_loss_uses_semi_hard_triplets_only() -> None:
    e, z = batch()
    far = torch.cdist(F.normalize(e), F.normalize(e)).tolist()
    triplets = [
        (far[a][p], far[a][n])
        for a in range(20)
        for p in range(20)
        for n in range(20)
        if a != p and LABELS[a] == LABELS[p] != LABELS[n]
    ]
    losses = [near - other + 0.2 for near, other in triplets if near < other < near + 0.2]
    assert 0 < len(losses) < len(triplets)
    assert baseline_loss("triplet", 4, 8)(e, z, LABELS).item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_multi_similarity_loss_uses_mined_pairs_only() -> None:
    e, z = batch()
    loss = baseline_loss("multi-similarity", 4, 8)
    assert not torch.isclose(loss(e, z, LABELS), loss.criterion(e, LABELS))
    assert torch.isclose(loss(e, z, LABELS), loss.criterion(e, LABELS, loss.miner(e, LABELS)))


def test_cross_entropy_equals_torch() -> None:
    e, z = batch()
    assert torch.equal(baseline_loss("cross-entropy", 4, 8)(e, z, LABELS), F.cross_entropy(z, LABELS))
    assert baseline_loss("cross-entropy", 4, 8)(e, z.bfloat16(), LABELS).dtype == torch.float32


def test_unknown_loss_raises_and_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="loss 'arcface' is unknown; expected one of cross-entropy, triplet, "):
        baseline_loss("arcface", 4, 8)


@pytest.mark.parametrize(
    ("num_classes", "embedding_size", "message"),
    [
        (0, 32, "num_classes is 0; expected a whole number of 1 or more"),
        (4, -1, "embedding_size is -1; expected a whole number of 1 or more"),
        (4.0, 32, "num_classes is 4.0; expected a whole number of 1 or more"),
    ],
)
def test_invalid_sizes_raise(num_classes: int, embedding_size: int, message: str) -> None:
    for name in ("proxy-nca", "cross-entropy"):
        with pytest.raises(ValueError, match=message):
            baseline_loss(name, num_classes, embedding_size)


def test_missing_library_raises_if_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)  # makes the import fail
    with pytest.raises(
        MissingExtraError,
        match=r"pytorch_metric_learning .*; expected: pip install 'entourage\[losses\]'",
    ):
        baseline_loss("triplet", 4, 8)
    assert baseline_loss("cross-entropy", 4, 8)
