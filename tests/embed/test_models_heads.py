"""Logits, initialisation, gradients and validation of the classifiers."""

import math

import pytest
import torch
from torch import nn

from entourage.embed import CosineHead, MultiCenterHead
from entourage.embed.models import HeadKind, cosine_logits, make_head


def test_logits_are_scaled_cosines() -> None:
    torch.manual_seed(0)
    embeddings, vectors = torch.randn(5, 7), torch.randn(3, 7)
    expected = nn.functional.cosine_similarity(embeddings[:, None], vectors[None], dim=2)
    torch.testing.assert_close(cosine_logits(embeddings, vectors, 4.0), 4 * expected)


def test_logits_are_invariant_to_lengths() -> None:
    torch.manual_seed(0)
    head, embeddings = CosineHead(7, 3, scale=10.0), torch.randn(5, 7)
    before = head(embeddings)
    assert before.abs().max() <= 10
    with torch.no_grad():
        head.weight *= torch.tensor([[1.0], [0.1], [30.0]])
    torch.testing.assert_close(head(100 * embeddings), before)


def test_class_vectors_are_initialised_with_about_unit_length() -> None:
    torch.manual_seed(0)
    weight = CosineHead(1280, 100).weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(100), rtol=0, atol=0.15)  # 1/sqrt(2 d) is 0.02
    assert nn.functional.normalize(weight).mean(dim=0).norm() < 0.2


def test_one_centre_per_class_equals_the_cosine_head() -> None:
    torch.manual_seed(0)
    head, embeddings = MultiCenterHead(7, 3, scale=4.0, centers_per_class=1), torch.randn(5, 7)
    torch.testing.assert_close(head(embeddings), cosine_logits(embeddings, head.centre_vectors[:, 0], 4.0))


def test_centres_are_weighted_by_softmax() -> None:
    torch.manual_seed(0)
    head, embeddings = (
        MultiCenterHead(7, 3, scale=4.0, centers_per_class=2, gamma=0.3).double(),
        torch.randn(5, 7).double(),
    )
    logits = head(embeddings).detach()
    for n, embedding in enumerate(embeddings):
        for m, centres in enumerate(head.centre_vectors.detach()):
            cosines = [float(embedding @ centre / (embedding.norm() * centre.norm())) for centre in centres]
            weights = [math.exp(cosine / 0.3) for cosine in cosines]
            expected = sum(assigned * cosine for assigned, cosine in zip(weights, cosines, strict=True)) / sum(weights)
            assert float(logits[n, m]) == pytest.approx(4 * expected, rel=1e-12)


def test_all_centres_receive_gradients() -> None:
    torch.manual_seed(0)
    head = MultiCenterHead(7, 3, centers_per_class=4)
    nn.functional.cross_entropy(head(torch.randn(6, 7)), torch.arange(6) % 3).backward()
    assert head.centre_vectors.grad is not None
    assert (head.centre_vectors.grad.norm(dim=2) > 0).all()


def test_weight_is_the_mean_direction_of_the_centres() -> None:
    head = MultiCenterHead(2, 1, centers_per_class=2)
    with torch.no_grad():
        head.centre_vectors.copy_(torch.tensor([[[3.0, 0.0], [0.0, 0.1]]]))
    torch.testing.assert_close(head.weight, torch.tensor([[0.5, 0.5]]))
    assert list(head.state_dict()) == ["centre_vectors"]


@pytest.mark.parametrize("kind", ["cosine", "centres"])
def test_autocast_does_not_reduce_precision(kind: HeadKind) -> None:
    torch.manual_seed(0)
    head, embeddings = make_head(kind, 64, 3), torch.randn(5, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(embeddings)
    assert torch.equal(inside, head(embeddings))
    assert head(embeddings.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize(
    ("kind", "made"), [("linear", nn.Linear), ("cosine", CosineHead), ("centres", MultiCenterHead)]
)
def test_weight_has_one_row_per_class(kind: str, made: type[nn.Module]) -> None:
    head = make_head(kind, 7, 3)  # type: ignore[arg-type]
    assert isinstance(head, made)
    assert head.weight.shape == (3, 7)
    assert head(torch.zeros(2, 7)).shape == (2, 3)


def test_invalid_heads_raise() -> None:
    with pytest.raises(ValueError, match="head is 'mlp'; expected linear, cosine or centres"):
        make_head("mlp", 7, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scale is 0.0; expected a finite number above 0"):
        make_head("cosine", 7, 3, scale=0.0)
    with pytest.raises(ValueError, match=r"scale is 0.0; expected a finite number above 0"):
        make_head("centres", 7, 3, scale=0.0)
    with pytest.raises(ValueError, match=r"gamma is 0.0; expected a finite number above 0"):
        MultiCenterHead(7, 3, gamma=0.0)
    with pytest.raises(ValueError, match="scale is inf; expected a finite number above 0"):
        MultiCenterHead(7, 3, scale=math.inf)
    for sizes, message in (
        ((7, 3, 20.0, 0), "centers_per_class is 0"),
        ((7, 3, 20.0, 2.5), "centers_per_class is 2.5"),
        ((7, 0), "num_classes is 0"),
    ):
        with pytest.raises(ValueError, match=f"{message}; expected a whole number of 1 or more"):
            MultiCenterHead(*sizes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="embedding_size is 0; expected a whole number of 1 or more"):
        CosineHead(0, 3)


def test_default_number_of_centres_is_ten() -> None:
    assert MultiCenterHead(7, 3).centre_vectors.shape == (3, 10, 7)
