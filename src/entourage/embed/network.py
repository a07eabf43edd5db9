"""The network that is trained: a backbone, an embedding, and a classifier on it; embeddings and logits side by side."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone
from entourage.backbones.norm import keep_statistics
from entourage.embed.heads import HeadKind, make_head


class Embedded(NamedTuple):
    """What a network says of a batch: embeddings, shape (b, d), and logits, shape (b, m)."""

    embeddings: Tensor
    logits: Tensor


class EmbeddingNetwork(nn.Module):
    """Normalised images to embeddings and logits.

    Args:
        body: images (b, 3, h, w) to features (b, dim).
        dim: length of a feature vector.
        classes: of the training images, m.
        dimensions: of an embedding; None takes the features as they are, as the thesis does.
        head: the kind of classifier.
        scale: of a cosine classifier.
        freeze_norm: batch normalisation keeps the statistics of its pretraining: those of a batch of few classes say
            little of others.
    """

    def __init__(
        self,
        body: nn.Module,
        dim: int,
        classes: int,
        *,
        dimensions: int | None = None,
        head: HeadKind = "linear",
        scale: float = 20.0,
        freeze_norm: bool = False,
    ) -> None:
        super().__init__()
        self.body = body
        self.project: nn.Module = nn.Identity() if dimensions is None else nn.Linear(dim, dimensions)
        self.dimensions = dim if dimensions is None else dimensions
        self.head = make_head(head, self.dimensions, classes, scale=scale)
        self.freeze_norm = freeze_norm

    def embed(self, images: Tensor) -> Tensor:
        """Embeddings alone, shape (b, d): all that retrieval needs."""
        embeddings: Tensor = self.project(self.body(images))
        return embeddings

    def forward(self, images: Tensor) -> Embedded:
        """Embeddings, shape (b, d), and logits, shape (b, m)."""
        embeddings = self.embed(images)
        return Embedded(embeddings, self.head(embeddings))

    def train(self, mode: bool = True) -> Self:
        """As usual, but frozen statistics stay frozen."""
        super().train(mode)
        if self.freeze_norm:
            keep_statistics(self.body)
        return self


def build_network(
    backbone: Backbone,
    classes: int,
    *,
    dimensions: int | None = None,
    head: HeadKind = "linear",
    scale: float = 20.0,
    freeze_norm: bool = False,
) -> EmbeddingNetwork:
    """The backbone with an embedding and a classifier, channels last; it shares the backbone's weights."""
    network = EmbeddingNetwork(
        backbone.module,
        backbone.dim,
        classes,
        dimensions=dimensions,
        head=head,
        scale=scale,
        freeze_norm=freeze_norm,
    )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
