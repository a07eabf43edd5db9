"""The Group Loss in all precisions, for extreme values and for small batches."""

import pytest
import torch
import torch.nn.functional as F
from tests.embed.batches import CLASSES, LABELS, batch

from entourage.embed import GroupLoss
from entourage.embed.losses.options import PRESETS

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", PRESETS)
def test_every_precision_gives_the_same_loss(name: str, dtype: torch.dtype, device: str) -> None:
    e, z = (t.detach().to(device).requires_grad_() for t in batch(dtype=dtype))
    loss = GroupLoss.from_preset(name, anchor_choice="first").eval()  # without memory
    labels = LABELS.to(device)
    actual = loss(e, z, labels)
    assert actual.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    # The expected value is computed from the same rounded inputs in float64.
    expected = loss(e.detach().double(), z.detach().double(), labels)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)  # float32 over five iterations
    actual.backward()
    assert e.grad is not None
    assert e.grad.dtype == dtype
    assert e.grad.isfinite().all()


def test_embeddings_and_logits_may_have_different_precisions() -> None:
    e, z = batch(dtype=torch.float16)
    large = 1e6 * z.detach().float()  # beyond float16
    loss = GroupLoss(anchor_choice="first", temperature=1e6)
    torch.testing.assert_close(loss(e, large, LABELS), loss(e.float(), large, LABELS))
    assert loss(e, large.double(), LABELS).dtype == torch.float64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_does_not_lower_the_precision(dtype: torch.dtype, device: str) -> None:
    e, z = (t.to(device) for t in batch(dtype=torch.float32))
    loss, labels = GroupLoss(anchor_choice="first"), LABELS.to(device)
    with torch.autocast(device, dtype=dtype):
        assert (e @ e.T).dtype == dtype
        inside = loss(e, z, labels)
        mixed = loss(e.to(dtype), z, labels)
    torch.testing.assert_close(inside, loss(e, z, labels), rtol=1e-6, atol=1e-6)  # a GPU's sums have no fixed order
    assert mixed.dtype == torch.float32


@pytest.mark.parametrize("anchors", range(6))
@pytest.mark.parametrize("name", PRESETS)
def test_any_number_of_anchors_below_the_class_size_works(name: str, anchors: int) -> None:
    e, z = (t.detach().repeat(2, 1)[:18].requires_grad_() for t in batch(dtype=torch.float32))
    labels = torch.arange(3).repeat(6)  # six of each class
    value = GroupLoss.from_preset(name, anchors_per_class=anchors)(e, z, labels)
    value.backward()
    assert value.isfinite()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (e, z))


@pytest.mark.parametrize("similarity", ["pearson", "cosine", "gaussian"])
def test_collapsed_embeddings_have_finite_gradients(similarity: str) -> None:
    e, z = batch(dtype=torch.float32)
    e = e.detach()[:1].expand(len(e), -1).clone().requires_grad_()
    loss = GroupLoss(similarity=similarity, class_players=1.0, memory=1)
    for _ in range(2):  # the second batch has the first one in its memory
        value = loss(e, z, LABELS, torch.randn(CLASSES, e.shape[1], generator=torch.Generator().manual_seed(0)))
        value.backward()
        assert value.isfinite()
        assert all(t.grad is not None and t.grad.isfinite().all() for t in (e, z))


@pytest.mark.parametrize("objective", ["labels", "agreement"])
@pytest.mark.parametrize("name", PRESETS)
def test_batches_of_one_class_or_one_sample_work(name: str, objective: str) -> None:
    e, z = batch(dtype=torch.float32)
    for n, anchors in ((16, 2), (2, 1), (1, 0)):
        loss = GroupLoss.from_preset(name, objective=objective, anchors_per_class=anchors)
        value = loss(e[:n], z[:n], torch.full((n,), 3))
        gradients = torch.autograd.grad(value, (e, z), allow_unused=True, materialize_grads=True)
        assert value.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)


EXTREMES = {
    "the same": lambda e, z: (torch.ones_like(e) * e[:1], z),
    "constant rows": lambda e, z: (torch.ones_like(e), z),
    "zeros": lambda e, z: (torch.zeros_like(e), torch.zeros_like(z)),
    "opposites": lambda e, z: (e[:1] * torch.tensor([1.0, -1.0]).repeat(8)[:, None], z),
    "huge": lambda e, z: (1e18 * e, 1e4 * z),
    "as huge as can be": lambda e, z: (3e38 * (e / e.abs().max()), 3e38 * (z / z.abs().max())),
    "tiny": lambda e, z: (1e-30 * e, 1e-30 * z),
    "of different size": lambda e, z: (10.0 ** torch.linspace(-28, 37, len(e))[:, None] * e, z),
    "confident and wrong": lambda e, z: (e, 1e3 * F.one_hot((LABELS + 1) % CLASSES, CLASSES).float()),
    "confident and right": lambda e, z: (e, 1e3 * F.one_hot(LABELS, CLASSES).float()),
}


@pytest.mark.parametrize("objective", ["labels", "agreement"])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("name", PRESETS)
def test_never_nan(name: str, extreme: str, objective: str) -> None:
    e, z = (t.detach() for t in batch(dtype=torch.float32))
    e, z = (t.clone().requires_grad_() for t in EXTREMES[extreme](e, z))
    for changes in ({}, {"iterations": 10, "temperature": 0.1}, {"label_smoothing": 0.1, "negatives": "shift"}):
        value = GroupLoss.from_preset(name, objective=objective, **changes)(e, z, LABELS)
        gradients = torch.autograd.grad(value, (e, z), allow_unused=True, materialize_grads=True)
        assert value.isfinite(), changes
        assert all(gradient.isfinite().all() for gradient in gradients), changes


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
@pytest.mark.parametrize("similarity", ["pearson", "cosine", "gaussian"])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_nan_for_any_class_vectors_and_similarity(extreme: str, similarity: str, negatives: str) -> None:
    e, z = (t.detach() for t in batch(dtype=torch.float32))
    e, z = (t.clone().requires_grad_() for t in EXTREMES[extreme](e, z))
    vectors = torch.randn(CLASSES, e.shape[1], generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # for the anchors
    for size in (1.0, 1e37):
        own_vectors = (size * vectors).requires_grad_()
        loss = GroupLoss(
            iterations=3,
            temperature=1e-3,
            similarity=similarity,
            negatives=negatives,
            sharpness=32.0,
            proxy_weight=1e6,
            class_players=1e6,
            memory=1,
        )
        for _ in range(2):  # the second batch has the first one in its memory
            value = loss(e, z, LABELS, own_vectors)
            gradients = torch.autograd.grad(value, (e, z, own_vectors))
            assert value.isfinite()
            assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("size", [1e-25, 1e19, 1e36])
def test_gaussian_is_invariant_to_the_scale_of_all_embeddings(size: float) -> None:
    e, z = (t.detach() for t in batch(dtype=torch.float32))
    vectors = torch.randn(CLASSES, e.shape[1], generator=torch.Generator().manual_seed(0))
    loss = GroupLoss(similarity="gaussian", anchor_choice="first", class_players=1.0)
    torch.testing.assert_close(loss(size * e, z, LABELS, size * vectors), loss(e, z, LABELS, vectors))
