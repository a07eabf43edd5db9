"""Classifiers on top of an embedding: what gives the game its prior.

The network that is trained: a backbone, an embedding, and a classifier on it; embeddings and logits side by side.

From decoded images to embeddings, with a network that may still be in training; ensembles by concatenation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.backbones.finetuning import freeze_batch_norm
from entourage.game.similarity import normalize_rows
from entourage.io.progress import progress_bar
from entourage.training.images import ImageBank
from entourage.validation import check_sizes

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
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: the largest a logit can be; 1/0.05, as in the normalised softmax.
    """

    def __init__(self, embedding_size: int, num_classes: int, scale: float = 20.0) -> None:
        super().__init__()
        check_sizes(embedding_size=embedding_size, num_classes=num_classes)
        _check_positive(scale=scale)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.normal_(self.weight, std=1 / math.sqrt(embedding_size))  # rows of about length 1, in any direction

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


class MultiCenterHead(nn.Module):
    """A cosine classifier with several directions a class, as in SoftTriple (Qian et al., 2019), without its margin.

    Of a class an embedding sees the mean of the cosines with its centres, the nearest of which count most.

    Args:
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: the largest a logit can be.
        centers_per_class: number of centres of each class.
        gamma: how softly an embedding is assigned to centres, by softmax(cosines / gamma).
    """

    def __init__(
        self,
        embedding_size: int,
        num_classes: int,
        scale: float = 20.0,
        centers_per_class: int = 10,
        gamma: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(embedding_size=embedding_size, num_classes=num_classes, centers_per_class=centers_per_class)
        _check_positive(scale=scale, gamma=gamma)
        self.scale = scale
        self.gamma = gamma
        self.centre_vectors = nn.Parameter(torch.empty(num_classes, centers_per_class, embedding_size))
        nn.init.normal_(self.centre_vectors, std=1 / math.sqrt(embedding_size))

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
        num_classes, centers, embedding_size = self.centre_vectors.shape
        return f"{embedding_size}, {num_classes}, scale={self.scale}, centers_per_class={centers}, gamma={self.gamma}"


def make_head(
    kind: HeadKind, embedding_size: int, num_classes: int, *, scale: float = 20.0
) -> nn.Linear | CosineHead | MultiCenterHead:
    """A classifier whose `weight` has a row a class, shape (m, d).

    Args:
        kind: "linear", "cosine", or "centres": a cosine with ten directions a class.
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: of cosines.

    Raises:
        ValueError: on another kind.
    """
    if kind == "linear":
        return nn.Linear(embedding_size, num_classes)
    if kind == "cosine":
        return CosineHead(embedding_size, num_classes, scale)
    if kind == "centres":
        return MultiCenterHead(embedding_size, num_classes, scale)
    raise ValueError(f"head is {kind!r}; expected linear, cosine or centres")


def _check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; expected a finite number above 0")


class NetworkOutput(NamedTuple):
    """What a network says of a batch: embeddings, shape (b, d), and logits, shape (b, m)."""

    embeddings: Tensor
    logits: Tensor


class EmbeddingNetwork(nn.Module):
    """Normalised images to embeddings and logits.

    Args:
        body: images (b, 3, h, w) to features (b, dim).
        dim: length of a feature vector.
        num_classes: number of classes of the training images, m.
        embedding_size: dimension of the embeddings; None takes the features as they are, as the thesis does.
        head: the kind of classifier.
        scale: of a cosine classifier.
        freeze_norm: batch normalisation keeps the statistics of its pretraining: those of a batch of few classes say
            little of others.
    """

    def __init__(
        self,
        body: nn.Module,
        dim: int,
        num_classes: int,
        *,
        embedding_size: int | None = None,
        head: HeadKind = "linear",
        scale: float = 20.0,
        freeze_norm: bool = False,
    ) -> None:
        super().__init__()
        self.body = body
        self.project: nn.Module = nn.Identity() if embedding_size is None else nn.Linear(dim, embedding_size)
        self.embedding_size = dim if embedding_size is None else embedding_size
        self.head = make_head(head, self.embedding_size, num_classes, scale=scale)
        self.freeze_norm = freeze_norm

    def embed(self, images: Tensor) -> Tensor:
        """Embeddings alone, shape (b, d): all that retrieval needs."""
        embeddings: Tensor = self.project(self.body(images))
        return embeddings

    def forward(self, images: Tensor) -> NetworkOutput:
        """Embeddings, shape (b, d), and logits, shape (b, m)."""
        embeddings = self.embed(images)
        return NetworkOutput(embeddings, self.head(embeddings))

    def train(self, mode: bool = True) -> Self:
        """As usual, but frozen statistics stay frozen."""
        super().train(mode)
        if self.freeze_norm:
            freeze_batch_norm(self.body)
        return self


def build_network(
    backbone: Backbone,
    num_classes: int,
    *,
    embedding_size: int | None = None,
    head: HeadKind = "linear",
    scale: float = 20.0,
    freeze_norm: bool = False,
) -> EmbeddingNetwork:
    """The backbone with an embedding and a classifier, channels last; it shares the backbone's weights."""
    network = EmbeddingNetwork(
        backbone.module,
        backbone.dim,
        num_classes,
        embedding_size=embedding_size,
        head=head,
        scale=scale,
        freeze_norm=freeze_norm,
    )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


Rows = NDArray[np.int64]

BATCH_SIZES = {"cpu": 64, "cuda": 1024}


@torch.inference_mode()
def embed_rows(
    network: EmbeddingNetwork,
    bank: ImageBank,
    rows: Rows,
    preprocessing: Preprocessing,
    *,
    flip: bool = False,
    progress: bool | None = False,
) -> Tensor:
    """Embeddings of some images of a bank, computed where the network is, in bfloat16 on a GPU.

    Args:
        network: in evaluation mode.
        bank: decoded images.
        rows: which of them, shape (k,).
        preprocessing: size and normalisation of the network's input; of larger images the middle is taken.
        flip: add the embedding of the mirror image.
        progress: show a bar; None: only on a terminal.

    Returns:
        float32, shape (k, d), on the network's device.
    """
    device = network.head.weight.device
    size = BATCH_SIZES.get(device.type, BATCH_SIZES["cpu"])
    parts = []
    with progress_bar("Embedding images", len(rows), progress) as advance:
        for start in range(0, len(rows), size):
            batch_rows = rows[start : start + size]
            images = preprocessing.normalize(center_crop(bank.take(batch_rows).to(device), preprocessing.size))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                embeddings = network.embed(images).float()
                if flip:
                    embeddings = embeddings + network.embed(images.flip(3)).float()
            parts.append(embeddings)
            advance(len(batch_rows))
    return torch.cat(parts) if parts else torch.empty(0, network.embedding_size, device=device)


def center_crop(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of images, shape (b, 3, h, w) -> (b, 3, *size).

    Raises:
        ValueError: the images are smaller than that.
    """
    (height, width), (crop_height, crop_width) = pixels.shape[2:], size
    if crop_height > height or crop_width > width:
        raise ValueError(
            f"images of {height} x {width} pixels for a network that looks at {crop_height} x {crop_width}; "
            "decode larger"
        )
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return pixels[:, :, top : top + crop_height, left : left + crop_width]


def concatenate_embeddings(parts: Sequence[Tensor]) -> Tensor:
    """The embeddings of an ensemble (thesis, chapter 4): each network's direction, one after the other, scaled to 1.

    Args:
        parts: embeddings of the same items by each network, shapes (n, d_1), (n, d_2), ...

    Returns:
        Shape (n, d_1 + d_2 + ...), rows of length 1: cosines are the means of the networks' cosines.

    Raises:
        ValueError: no networks, or embeddings of different numbers of items.
    """
    if len({len(part) for part in parts}) != 1:
        counts = ", ".join(str(len(part)) for part in parts) or "none"
        raise ValueError(f"embeddings of {counts} items; expected one or more networks' of the same items")
    return torch.cat([normalize_rows(part) for part in parts], dim=1) / math.sqrt(len(parts))
