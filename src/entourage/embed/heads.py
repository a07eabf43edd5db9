"""Classifiers on top of an embedding: what gives the game its prior."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HeadKind = Literal["linear", "cosine"]


def cosine_logits(embeddings: Tensor, class_vectors: Tensor, scale: float | Tensor) -> Tensor:
    """The cosine of each embedding with each class vector, times a scale.

    Args:
        embeddings: shape (n, d).
        class_vectors: shape (m, d).
        scale: the largest a logit can be.

    Returns:
        Logits, shape (n, m).
    """
    return scale * (F.normalize(embeddings, dim=1) @ F.normalize(class_vectors, dim=1).T)


class CosineHead(nn.Module):
    """A classifier that looks at directions only, as retrieval does.

    Args:
        dimensions: of an embedding.
        classes: how many there are.
        scale: the largest a logit can be; 1/0.05, as in the normalised softmax.
    """

    def __init__(self, dimensions: int, classes: int, scale: float = 20.0) -> None:
        super().__init__()
        if not scale > 0:
            raise ValueError(f"scale is {scale}; expected a number above 0")
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(classes, dimensions))
        nn.init.normal_(self.weight, std=1 / math.sqrt(dimensions))  # rows of about length 1, in any direction

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits, shape (n, m), of embeddings, shape (n, d)."""
        with torch.autocast(embeddings.device.type, enabled=False):  # eight bits are few for a cosine
            precise = embeddings.to(self.weight.dtype)
            return cosine_logits(precise, self.weight, self.scale)

    def extra_repr(self) -> str:
        """Sizes and scale, for `print`."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, scale={self.scale}"


def make_head(kind: HeadKind, dimensions: int, classes: int, *, scale: float = 20.0) -> nn.Linear | CosineHead:
    """A classifier whose `weight` has a row a class, shape (m, d).

    Args:
        kind: "linear", or "cosine".
        dimensions: of an embedding.
        classes: how many there are.
        scale: of a cosine.

    Raises:
        ValueError: on another kind.
    """
    if kind == "linear":
        return nn.Linear(dimensions, classes)
    if kind == "cosine":
        return CosineHead(dimensions, classes, scale)
    raise ValueError(f"head is {kind!r}; expected linear or cosine")
