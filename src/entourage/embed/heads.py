"""Classifiers on top of an embedding: what gives the game its prior."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.checked import check_sizes

HeadKind = Literal["linear", "cosine", "centres"]


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
        check_sizes(dimensions=dimensions, classes=classes)
        _check_positive(scale=scale)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(classes, dimensions))
        nn.init.normal_(self.weight, std=1 / math.sqrt(dimensions))  # rows of about length 1, in any direction

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits, shape (n, m), of embeddings, shape (n, d)."""
        with torch.autocast(embeddings.device.type, enabled=False):  # eight bits are few for a cosine
            precise = embeddings.to(self.weight.dtype)
            return cosine_logits(precise, self.weight, self.scale)

    @property
    def in_features(self) -> int:
        """Dimensions of an embedding, as `nn.Linear` calls them."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        """Sizes and scale, for `print`."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, scale={self.scale}"


class CentresHead(nn.Module):
    """A cosine classifier with several directions a class, as in SoftTriple (Qian et al., 2019), without its margin.

    Of a class an embedding sees the mean of the cosines with its centres, the nearest of which count most.

    Args:
        dimensions: of an embedding.
        classes: how many there are.
        scale: the largest a logit can be.
        centres: of each class.
        gamma: how softly an embedding is assigned to centres, by softmax(cosines / gamma).
    """

    def __init__(
        self, dimensions: int, classes: int, scale: float = 20.0, centres: int = 10, gamma: float = 0.1
    ) -> None:
        super().__init__()
        check_sizes(dimensions=dimensions, classes=classes, centres=centres)
        _check_positive(scale=scale, gamma=gamma)
        self.scale = scale
        self.gamma = gamma
        self.centre_vectors = nn.Parameter(torch.empty(classes, centres, dimensions))
        nn.init.normal_(self.centre_vectors, std=1 / math.sqrt(dimensions))

    @property
    def weight(self) -> Tensor:
        """The mean direction of each class' centres, shape (m, d)."""
        return F.normalize(self.centre_vectors, dim=2).mean(dim=1)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits, shape (n, m), of embeddings, shape (n, d)."""
        with torch.autocast(embeddings.device.type, enabled=False):  # eight bits are few for a cosine
            precise = embeddings.to(self.centre_vectors.dtype)
            cosines = cosine_logits(precise, self.centre_vectors.flatten(0, 1), 1.0)
            cosines = cosines.view(-1, *self.centre_vectors.shape[:2])  # (n, m, centres)
            assigned = torch.softmax(cosines / self.gamma, dim=2)
            return self.scale * (assigned * cosines).sum(dim=2)

    @property
    def in_features(self) -> int:
        """Dimensions of an embedding, as `nn.Linear` calls them."""
        return self.centre_vectors.shape[2]

    def extra_repr(self) -> str:
        """Sizes, scale and gamma, for `print`."""
        classes, centres, dimensions = self.centre_vectors.shape
        return f"{dimensions}, {classes}, scale={self.scale}, centres={centres}, gamma={self.gamma}"


def make_head(
    kind: HeadKind, dimensions: int, classes: int, *, scale: float = 20.0
) -> nn.Linear | CosineHead | CentresHead:
    """A classifier whose `weight` has a row a class, shape (m, d).

    Args:
        kind: "linear", "cosine", or "centres": a cosine with ten directions a class.
        dimensions: of an embedding.
        classes: how many there are.
        scale: of cosines.

    Raises:
        ValueError: on another kind.
    """
    if kind == "linear":
        return nn.Linear(dimensions, classes)
    if kind == "cosine":
        return CosineHead(dimensions, classes, scale)
    if kind == "centres":
        return CentresHead(dimensions, classes, scale)
    raise ValueError(f"head is {kind!r}; expected linear, cosine or centres")


def _check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; expected a finite number above 0")
