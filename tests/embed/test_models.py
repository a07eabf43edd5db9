"""Outputs, embedding layer and frozen batch normalisation of the embedding network."""

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from entourage.embed.models import EmbeddingNetwork, build_network


@pytest.fixture
def images() -> Tensor:
    return torch.randn(5, 3, 20, 20, generator=torch.Generator().manual_seed(0))


def test_features_are_the_embedding_without_embedding_layer(toys: ModuleType, images: Tensor) -> None:
    backbone = toys.backbone()
    network = build_network(backbone, 3).eval()
    output = network(images)
    assert network.embedding_size == 8
    torch.testing.assert_close(output.embeddings, backbone.module(images))
    torch.testing.assert_close(output.logits, network.head(output.embeddings))
    assert torch.equal(network.embed(images), output.embeddings)


@pytest.mark.parametrize("head", ["linear", "cosine", "centres"])
def test_embedding_layer_follows_the_features(toys: ModuleType, images: Tensor, head: str) -> None:
    network = build_network(toys.backbone(), 3, embedding_size=4, head=head, scale=7.0).eval()  # type: ignore[arg-type]
    output = network(images)
    assert output.embeddings.shape == (5, 4)
    assert output.logits.shape == (5, 3)
    torch.testing.assert_close(output.embeddings, network.project(network.body(images)))
    if head != "linear":
        assert output.logits.abs().max() <= 7


def test_frozen_statistics_are_constant_while_weights_are_trained(toys: ModuleType, images: Tensor) -> None:
    for frozen in (True, False):
        network = EmbeddingNetwork(toys.ToyBody(), 8, 3, freeze_norm=frozen).train()
        norm = next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d))
        before = norm.running_mean.clone()  # type: ignore[union-attr]
        network(images).logits.sum().backward()
        assert torch.equal(before, norm.running_mean) == frozen  # type: ignore[arg-type]
        assert norm.weight.grad is not None
        assert network.training
        assert norm.training is not frozen
        assert not any(m.training for m in network.eval().modules())
