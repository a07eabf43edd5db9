"""Classifiers, the embedding network, and the computation of embeddings of decoded images."""

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
    """Compute the cosine of each embedding with each class vector, times a scale.

    Args:
        embeddings: shape (n, d).
        class_vectors: shape (m, d).
        scale: factor of the cosines.

    Returns:
        Logits, shape (n, m).
    """
    return scale * (F.normalize(embeddings, dim=1) @ F.normalize(class_vectors, dim=1).T)


class CosineHead(nn.Module):
    """Cosine classifier: logits depend on the directions of embeddings only, as retrieval does.

    Args:
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: factor of the cosines; the default is 1/0.05, as in the normalised softmax.

    Raises:
        ValueError: a size is less than 1, or the scale is not a positive number.
    """

    def __init__(self, embedding_size: int, num_classes: int, scale: float = 20.0) -> None:
        super().__init__()
        check_sizes(embedding_size=embedding_size, num_classes=num_classes)
        _check_positive(scale=scale)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.normal_(self.weight, std=1 / math.sqrt(embedding_size))  # random directions, rows of about length 1

    def forward(self, embeddings: Tensor) -> Tensor:
        """Compute logits, shape (n, m), from embeddings, shape (n, d)."""
        with torch.autocast(embeddings.device.type, enabled=False):  # bfloat16 is too coarse for cosines
            precise = embeddings.to(self.weight.dtype)
            return cosine_logits(precise, self.weight, self.scale)

    @property
    def in_features(self) -> int:
        """Dimension of the embeddings, named as in `nn.Linear`."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        """Return sizes and scale, for `print`."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, scale={self.scale}"


class MultiCenterHead(nn.Module):
    """Cosine classifier with several centres per class, as in SoftTriple (Qian et al., 2019), without its margin.

    The logit of a class is the mean of the cosines with its centres, weighted by softmax(cosines / gamma), times the
    scale.

    Args:
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: factor of the cosines.
        centers_per_class: number of centres of each class.
        gamma: temperature of the softmax over the centres of a class.

    Raises:
        ValueError: a size is less than 1, or the scale or gamma is not a positive number.
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
        """Mean of the normalised centres of each class, shape (m, d)."""
        return F.normalize(self.centre_vectors, dim=2).mean(dim=1)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Compute logits, shape (n, m), from embeddings, shape (n, d)."""
        with torch.autocast(embeddings.device.type, enabled=False):  # bfloat16 is too coarse for cosines
            precise = embeddings.to(self.centre_vectors.dtype)
            cosines = cosine_logits(precise, self.centre_vectors.flatten(0, 1), 1.0)
            cosines = cosines.view(-1, *self.centre_vectors.shape[:2])  # (n, m, centres)
            assigned = torch.softmax(cosines / self.gamma, dim=2)
            return self.scale * (assigned * cosines).sum(dim=2)

    @property
    def in_features(self) -> int:
        """Dimension of the embeddings, named as in `nn.Linear`."""
        return self.centre_vectors.shape[2]

    def extra_repr(self) -> str:
        """Return sizes, scale and gamma, for `print`."""
        num_classes, centers, embedding_size = self.centre_vectors.shape
        return f"{embedding_size}, {num_classes}, scale={self.scale}, centers_per_class={centers}, gamma={self.gamma}"


def make_head(
    kind: HeadKind, embedding_size: int, num_classes: int, *, scale: float = 20.0
) -> nn.Linear | CosineHead | MultiCenterHead:
    """Create a classifier whose `weight` has a row per class, shape (m, d).

    Args:
        kind: "linear" for `nn.Linear`, "cosine" for `CosineHead`, "centres" for `MultiCenterHead` with ten centres.
        embedding_size: dimension of the embeddings.
        num_classes: number of classes.
        scale: factor of the cosines; a linear classifier ignores it.

    Returns:
        The classifier.

    Raises:
        ValueError: the kind is unknown.
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
    """Output of a network for a batch: embeddings, shape (b, d), and logits, shape (b, m)."""

    embeddings: Tensor
    logits: Tensor


class EmbeddingNetwork(nn.Module):
    """Network from normalised images to embeddings and logits.

    Args:
        body: network from images, shape (b, 3, h, w), to features, shape (b, dim).
        dim: length of a feature vector.
        num_classes: number of classes of the training images, m.
        embedding_size: dimension of the embeddings; None uses the features as embeddings, as the thesis does.
        head: kind of classifier, see `make_head`.
        scale: factor of the cosines of a cosine classifier.
        freeze_norm: whether batch normalisation keeps its pretrained statistics: those of batches with few classes are
            not representative.
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
        """Compute the embeddings, shape (b, d), without the classifier."""
        embeddings: Tensor = self.project(self.body(images))
        return embeddings

    def forward(self, images: Tensor) -> NetworkOutput:
        """Compute embeddings, shape (b, d), and logits, shape (b, m)."""
        embeddings = self.embed(images)
        return NetworkOutput(embeddings, self.head(embeddings))

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; frozen batch normalisation stays in evaluation mode."""
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
    """Build an `EmbeddingNetwork` on a backbone, in channels-last layout; it shares the backbone's weights."""
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
    """Compute embeddings of images of a bank on the network's device, in bfloat16 on a GPU.

    Args:
        network: the network, in evaluation mode.
        bank: decoded images.
        rows: indices of the images, shape (k,).
        preprocessing: size and normalisation of the network's input; larger images are centre-cropped.
        flip: whether to add the embeddings of the mirrored images.
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        Embeddings, float32, shape (k, d), on the network's device.
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
    """Crop the centre of images, shape (b, 3, h, w) -> (b, 3, *size); a ValueError if they are smaller."""
    (height, width), (crop_height, crop_width) = pixels.shape[2:], size
    if crop_height > height or crop_width > width:
        raise ValueError(f"pixels: images of {height} x {width}; expected {crop_height} x {crop_width} or more")
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return pixels[:, :, top : top + crop_height, left : left + crop_width]


def concatenate_embeddings(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate the embeddings of an ensemble (thesis, chapter 4), each normalised first, and scale them to length 1.

    Args:
        parts: embeddings of the same items by each network, shapes (n, d_1), (n, d_2), ...

    Returns:
        Embeddings, shape (n, d_1 + d_2 + ...), rows of length 1. Their cosines are the means of the networks' cosines.

    Raises:
        ValueError: there are no networks, or their numbers of items differ.
    """
    if len({len(part) for part in parts}) != 1:
        counts = ", ".join(str(len(part)) for part in parts) or "none"
        raise ValueError(f"parts: embeddings of {counts} items; expected one or more networks, with equal numbers")
    return torch.cat([normalize_rows(part) for part in parts], dim=1) / math.sqrt(len(parts))
