"""Losses of pytorch-metric-learning with the interface of the Group Loss, and the Group Loss with their interface.

The parameters of each loss are those of its paper; comments give the reasons for exceptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.embed.losses.group_loss import GroupLoss
from entourage.extras import extra_imports
from entourage.validation import check_sizes


class CrossEntropy(nn.Module):
    """Cross-entropy of the logits, the baseline of all metric losses."""

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch from logits, shape (n, m), and labels, shape (n,); the rest is ignored."""
        return F.cross_entropy(logits.to(_at_least_float32(logits)), labels)


class PMLLoss(nn.Module):
    """A loss of pytorch-metric-learning, called like the Group Loss.

    Args:
        criterion: the loss; its parameters are trained.
        miner: selects pairs or triplets; None uses all.
    """

    def __init__(self, criterion: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        self.miner = miner

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch from embeddings, shape (n, d), and labels, shape (n,); the rest is ignored."""
        # In half precision, the library would convert its parameters permanently.
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings32 = embeddings.to(_at_least_float32(embeddings))
            mined = None if self.miner is None else self.miner(embeddings32, labels)
            loss: Tensor = self.criterion(embeddings32, labels, mined)
            return loss


def baseline_loss(name: str, num_classes: int, embedding_size: int) -> nn.Module:
    """Create a baseline loss, to be called as `loss(embeddings, logits, labels)`.

    Args:
        name: one of `BASELINE_LOSSES`.
        num_classes: number of classes.
        embedding_size: dimension of the embeddings.

    Returns:
        The loss; proxies are its parameters.

    Raises:
        ValueError: the name is unknown, a size is less than 1, or pytorch-metric-learning is required and missing.
    """
    if name not in BASELINE_LOSSES:
        raise ValueError(f"loss {name!r} is unknown; expected one of {', '.join(BASELINE_LOSSES)}")
    check_sizes(num_classes=num_classes, embedding_size=embedding_size)
    if name == "cross-entropy":
        return CrossEntropy()
    return _FACTORIES[name](_import_pml(name), num_classes, embedding_size)


def _triplet(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    miner = library.miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
    return PMLLoss(library.losses.TripletMarginLoss(margin=0.2), miner)


def _n_pairs(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    # As in the paper, raw embeddings with a penalty on their length: for unit vectors the loss would hardly decrease.
    distance = library.distances.DotProductSimilarity(normalize_embeddings=False)
    length = library.regularizers.LpRegularizer(p=2, power=2)
    loss = library.losses.NPairsLoss(distance=distance, embedding_regularizer=length, embedding_reg_weight=0.002)
    return PMLLoss(loss)


def _multi_similarity(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    loss = library.losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
    return PMLLoss(loss, library.miners.MultiSimilarityMiner(epsilon=0.1))


def _proxy_loss(name: str, **settings: Any) -> Callable[[ModuleType, int, int], PMLLoss]:
    """Return a factory of losses with proxies or centres of each class, of which only the direction matters."""

    def make(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
        # Rows of about length 1, as in this package's classifiers: one learning rate then suits the proxies of all
        # losses. The library draws lengths from 1 to 36; long proxies would hardly turn in a short training.
        unit_vectors = library.utils.common_functions.TorchInitWrapper(
            nn.init.normal_, std=1 / math.sqrt(embedding_size)
        )
        loss = getattr(library.losses, name)
        return PMLLoss(
            loss(num_classes=num_classes, embedding_size=embedding_size, weight_init_func=unit_vectors, **settings)
        )

    return make


_FACTORIES: dict[str, Callable[[ModuleType, int, int], PMLLoss]] = {
    "triplet": _triplet,
    "lifted-structure": lambda library, *_: PMLLoss(library.losses.LiftedStructureLoss(neg_margin=1, pos_margin=0)),
    "n-pairs": _n_pairs,
    "angular": lambda library, *_: PMLLoss(library.losses.AngularLoss(alpha=40)),
    "proxy-nca": _proxy_loss("ProxyNCALoss", softmax_scale=9),  # vectors of length 3, as in the paper's code
    "proxy-anchor": _proxy_loss("ProxyAnchorLoss", margin=0.1, alpha=32),
    "multi-similarity": _multi_similarity,
    "soft-triple": _proxy_loss("SoftTripleLoss", centers_per_class=10, la=20, gamma=0.1, margin=0.01),
    "normalised-softmax": _proxy_loss("NormalizedSoftmaxLoss", temperature=0.05),
}

BASELINE_LOSSES = ("cross-entropy", *_FACTORIES)


def _import_pml(name: str) -> ModuleType:
    with extra_imports():
        import pytorch_metric_learning
        from pytorch_metric_learning import distances, losses, miners, regularizers  # noqa: F401
    module: ModuleType = pytorch_metric_learning
    return module


def _at_least_float32(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


class GroupLossWithHead(nn.Module):
    """Group Loss with its classifier, called like the losses of pytorch-metric-learning that have proxies.

    It can be used in the trainers and wrappers of that library, such as `MetricLossOnly` and `MultipleLosses`. The
    classifier is trained like proxies: pass `parameters()` to an optimiser.

    Args:
        head: classifier from embeddings, shape (n, d), to logits, shape (n, m), such as `MultiCenterHead(d, m)`. Its
            `weight` provides the class vectors if the `class_players` of the loss is above 0.
        loss: the loss; `GroupLoss()` when None.

    Raises:
        ValueError: the head is not a module, the loss is not a `GroupLoss`, or class vectors are required and the head
            has no weight.

    Examples:
        >>> import torch
        >>> from entourage.embed import MultiCenterHead, GroupLossWithHead
        >>> loss = GroupLossWithHead(MultiCenterHead(16, 3))
        >>> loss(torch.randn(12, 16), torch.arange(12) % 3).ndim
        0
    """

    def __init__(self, head: nn.Module, loss: GroupLoss | None = None) -> None:
        super().__init__()
        kind = type(head).__name__
        if not isinstance(head, nn.Module):
            raise ValueError(f"head is a {kind}; expected a module that returns logits, e.g. MultiCenterHead(d, m)")
        if loss is not None and not isinstance(loss, GroupLoss):
            raise ValueError(f"loss is a {type(loss).__name__}; expected a GroupLoss, or None for the default")
        self.head = head
        self.loss = GroupLoss() if loss is None else loss
        if self.loss.options.class_players > 0 and not isinstance(getattr(head, "weight", None), Tensor):
            raise ValueError(f"head is a {kind} without a weight; expected one, as class_players is above 0")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: shape (n, d).
            labels: shape (n,), integers from 0 to m - 1.
            indices_tuple: must be None; the Group Loss uses all pairs of the batch.
            ref_emb: must be None; the Group Loss stores earlier batches in its `memory`.
            ref_labels: must be None.

        Returns:
            A scalar.

        Raises:
            ValueError: pairs or references are passed, or see `GroupLoss.forward`.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple is given; expected None, as the Group Loss uses all pairs")
        if ref_emb is not None or ref_labels is not None:
            raise ValueError("ref_emb is given; expected None, as the Group Loss stores earlier batches in `memory`")
        vectors = self.head.weight if self.loss.options.class_players > 0 else None
        value: Tensor = self.loss(embeddings, self.get_logits(embeddings), labels, vectors)
        return value

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Compute the logits, shape (n, m), in the precision of the classifier's weights.

        Raises:
            ValueError: the dimension of the embeddings is not that of the classifier.
        """
        width = getattr(self.head, "in_features", None)
        if width is not None and embeddings.shape[-1:] != (width,):
            raise ValueError(f"embeddings have shape {tuple(embeddings.shape)}; expected (n, {width}), as in the head")
        precisions = (p.dtype for p in self.head.parameters() if p.is_floating_point())
        logits: Tensor = self.head(embeddings.to(next(precisions, embeddings.dtype)))
        return logits
