"""The losses that the field uses, from pytorch-metric-learning, behind the interface of the Group Loss.

Settings are those of each loss' paper, where they fit; each difference has its reason beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.checked import check_sizes


class CrossEntropy(nn.Module):
    """The plain cross-entropy of the logits: what classification does, and the least that a metric loss must beat.

    Args:
        label_smoothing: share of the target that goes to all classes evenly.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch: logits, shape (n, m), and labels, shape (n,); the rest is not looked at."""
        return F.cross_entropy(logits.to(_lifted(logits)), labels, label_smoothing=self.label_smoothing)


class Rival(nn.Module):
    """A loss of pytorch-metric-learning, called like the Group Loss; what it learns are its parameters.

    Args:
        criterion: the loss.
        miner: which pairs or triplets it gets to see; None for all.
    """

    def __init__(self, criterion: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        self.miner = miner

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch: embeddings, shape (n, d), and labels, shape (n,); the rest is not looked at."""
        # In half precision the library would cast what it learns to half precision too, for good.
        with torch.autocast(embeddings.device.type, enabled=False):
            precise = embeddings.to(_lifted(embeddings))
            mined = None if self.miner is None else self.miner(precise, labels)
            loss: Tensor = self.criterion(precise, labels, mined)
            return loss


def rival(name: str, classes: int, dimensions: int) -> nn.Module:
    """A loss by name, to be called as `loss(embeddings, logits, labels)`.

    Args:
        name: one of `RIVALS`.
        classes: how many there are.
        dimensions: of an embedding.

    Raises:
        ValueError: on an unknown name, no classes or dimensions, or if pytorch-metric-learning is missing where it is
            needed.
    """
    if name not in RIVALS:
        raise ValueError(f"rival {name!r} is unknown; expected one of {', '.join(RIVALS)}")
    check_sizes(classes=classes, dimensions=dimensions)
    return CrossEntropy() if name == "cross-entropy" else _MAKERS[name](_library(name), classes, dimensions)


def _triplet(library: ModuleType, classes: int, dimensions: int) -> Rival:
    miner = library.miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
    return Rival(library.losses.TripletMarginLoss(margin=0.2), miner)


def _n_pairs(library: ModuleType, classes: int, dimensions: int) -> Rival:
    # The paper compares raw embeddings and holds their length down; on the sphere the loss could hardly fall.
    distance = library.distances.DotProductSimilarity(normalize_embeddings=False)
    length = library.regularizers.LpRegularizer(p=2, power=2)
    loss = library.losses.NPairsLoss(distance=distance, embedding_regularizer=length, embedding_reg_weight=0.002)
    return Rival(loss)


def _multi_similarity(library: ModuleType, classes: int, dimensions: int) -> Rival:
    return Rival(
        library.losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), library.miners.MultiSimilarityMiner(epsilon=0.1)
    )


def _learned(name: str, **settings: Any) -> Callable[[ModuleType, int, int], Rival]:
    """A maker of losses that learn something of every class: proxies or centres, of which only the direction counts."""

    def make(library: ModuleType, classes: int, dimensions: int) -> Rival:
        # Rows of about length 1, as in our own classifiers: then one learning rate turns the proxies of all losses
        # equally fast. The library draws lengths of 1 to 36, with which some would hardly move in a short training.
        unit = library.utils.common_functions.TorchInitWrapper(nn.init.normal_, std=1 / math.sqrt(dimensions))
        loss = getattr(library.losses, name)
        return Rival(loss(num_classes=classes, embedding_size=dimensions, weight_init_func=unit, **settings))

    return make


_MAKERS: dict[str, Callable[[ModuleType, int, int], Rival]] = {
    "triplet": _triplet,
    "lifted-structure": lambda library, *_: Rival(library.losses.LiftedStructureLoss(neg_margin=1, pos_margin=0)),
    "n-pairs": _n_pairs,
    "angular": lambda library, *_: Rival(library.losses.AngularLoss(alpha=40)),
    "proxy-nca": _learned("ProxyNCALoss", softmax_scale=9),  # squared distances of vectors of length 3, as in its code
    "proxy-anchor": _learned("ProxyAnchorLoss", margin=0.1, alpha=32),
    "multi-similarity": _multi_similarity,
    "soft-triple": _learned("SoftTripleLoss", centers_per_class=10, la=20, gamma=0.1, margin=0.01),
    "normalised-softmax": _learned("NormalizedSoftmaxLoss", temperature=0.05),
}

RIVALS = ("cross-entropy", *_MAKERS)


def _library(name: str) -> ModuleType:
    try:
        import pytorch_metric_learning
        from pytorch_metric_learning import distances, losses, miners, regularizers  # noqa: F401
    except ImportError as error:
        advice = "pip install pytorch-metric-learning"
        raise ValueError(f"the loss {name!r} comes from pytorch-metric-learning, which is missing: {advice}") from error
    module: ModuleType = pytorch_metric_learning
    return module


def _lifted(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)
