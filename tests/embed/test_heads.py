"""Classifiers: a cosine is a cosine, in every precision."""

import pytest
import torch
from torch import nn

from entourage.embed import CosineHead, make_head
from entourage.embed.heads import cosine_logits


def test_logits_are_scaled_cosines() -> None:
    torch.manual_seed(0)
    embeddings, vectors = torch.randn(5, 7), torch.randn(3, 7)
    expected = nn.functional.cosine_similarity(embeddings[:, None], vectors[None], dim=2)
    torch.testing.assert_close(cosine_logits(embeddings, vectors, 4.0), 4 * expected)


def test_the_length_of_embeddings_and_class_vectors_is_not_seen() -> None:
    torch.manual_seed(0)
    head, embeddings = CosineHead(7, 3, scale=10.0), torch.randn(5, 7)
    before = head(embeddings)
    assert before.abs().max() <= 10
    with torch.no_grad():
        head.weight *= torch.tensor([[1.0], [0.1], [30.0]])
    torch.testing.assert_close(head(100 * embeddings), before)


def test_class_vectors_start_at_about_length_one_in_any_direction() -> None:
    torch.manual_seed(0)
    weight = CosineHead(1280, 100).weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(100), rtol=0, atol=0.15)  # 1/sqrt(2 d) is 0.02
    assert nn.functional.normalize(weight).mean(dim=0).norm() < 0.2


def test_autocast_keeps_the_digits_of_a_cosine() -> None:
    torch.manual_seed(0)
    head, embeddings = CosineHead(64, 3), torch.randn(5, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(embeddings)
    assert torch.equal(inside, head(embeddings))
    assert head(embeddings.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize(("kind", "made"), [("linear", nn.Linear), ("cosine", CosineHead)])
def test_both_kinds_have_a_row_a_class(kind: str, made: type[nn.Module]) -> None:
    head = make_head(kind, 7, 3)  # type: ignore[arg-type]
    assert isinstance(head, made)
    assert head.weight.shape == (3, 7)
    assert head(torch.zeros(2, 7)).shape == (2, 3)


def test_bad_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="head is 'mlp'; expected linear or cosine"):
        make_head("mlp", 7, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scale is 0.0; expected a number above 0"):
        make_head("cosine", 7, 3, scale=0.0)
