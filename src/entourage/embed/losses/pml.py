"""The losses that the field uses, from pytorch-metric-learning, behind the interface of the Group Loss.

Settings are those of each loss' paper, where they fit; each difference has its reason beside it.

The Group Loss where pytorch-metric-learning expects a loss: called with embeddings and labels.
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
from entourage.validation import check_sizes


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
        return F.cross_entropy(logits.to(_at_least_float32(logits)), labels, label_smoothing=self.label_smoothing)


class PMLLoss(nn.Module):
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
            embeddings32 = embeddings.to(_at_least_float32(embeddings))
            mined = None if self.miner is None else self.miner(embeddings32, labels)
            loss: Tensor = self.criterion(embeddings32, labels, mined)
            return loss


def baseline_loss(name: str, num_classes: int, embedding_size: int) -> nn.Module:
    """A loss by name, to be called as `loss(embeddings, logits, labels)`.

    Args:
        name: one of `BASELINE_LOSSES`.
        num_classes: number of classes.
        embedding_size: dimension of the embeddings.

    Raises:
        ValueError: on an unknown name, no classes or dimensions, or if pytorch-metric-learning is missing where it is
            needed.
    """
    if name not in BASELINE_LOSSES:
        raise ValueError(f"loss {name!r} is unknown; expected one of {', '.join(BASELINE_LOSSES)}")
    check_sizes(num_classes=num_classes, embedding_size=embedding_size)
    return (
        CrossEntropy() if name == "cross-entropy" else _FACTORIES[name](_import_pml(name), num_classes, embedding_size)
    )


def _triplet(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    miner = library.miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
    return PMLLoss(library.losses.TripletMarginLoss(margin=0.2), miner)


def _n_pairs(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    # The paper compares raw embeddings and holds their length down; on the sphere the loss could hardly fall.
    distance = library.distances.DotProductSimilarity(normalize_embeddings=False)
    length = library.regularizers.LpRegularizer(p=2, power=2)
    loss = library.losses.NPairsLoss(distance=distance, embedding_regularizer=length, embedding_reg_weight=0.002)
    return PMLLoss(loss)


def _multi_similarity(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
    return PMLLoss(
        library.losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), library.miners.MultiSimilarityMiner(epsilon=0.1)
    )


def _proxy_loss(name: str, **settings: Any) -> Callable[[ModuleType, int, int], PMLLoss]:
    """A maker of losses that learn something of every class: proxies or centres, of which only the direction counts."""

    def make(library: ModuleType, num_classes: int, embedding_size: int) -> PMLLoss:
        # Rows of about length 1, as in our own classifiers: then one learning rate turns the proxies of all losses
        # equally fast. The library draws lengths of 1 to 36, with which some would hardly move in a short training.
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
    "proxy-nca": _proxy_loss(
        "ProxyNCALoss", softmax_scale=9
    ),  # squared distances of vectors of length 3, as in its code
    "proxy-anchor": _proxy_loss("ProxyAnchorLoss", margin=0.1, alpha=32),
    "multi-similarity": _multi_similarity,
    "soft-triple": _proxy_loss("SoftTripleLoss", centers_per_class=10, la=20, gamma=0.1, margin=0.01),
    "normalised-softmax": _proxy_loss("NormalizedSoftmaxLoss", temperature=0.05),
}

BASELINE_LOSSES = ("cross-entropy", *_FACTORIES)


def _import_pml(name: str) -> ModuleType:
    try:
        import pytorch_metric_learning
        from pytorch_metric_learning import distances, losses, miners, regularizers  # noqa: F401
    except ImportError as error:
        advice = "pip install pytorch-metric-learning"
        raise ValueError(f"the loss {name!r} comes from pytorch-metric-learning, which is missing: {advice}") from error
    module: ModuleType = pytorch_metric_learning
    return module


def _at_least_float32(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


class GroupLossWithHead(nn.Module):
    """The Group Loss together with the classifier that it needs, as losses of pytorch-metric-learning with proxies are.

    It fits their trainers and wrappers, e.g. `MetricLossOnly` and `MultipleLosses`. Like proxies, the classifier is
    learnt: give `parameters()` of this to an optimiser too.

    Args:
        head: the classifier, from embeddings, shape (n, d), to logits, shape (n, m), e.g. `MultiCenterHead(d, m)`; its
            `weight` joins the game where the loss lets class vectors play.
        loss: the loss; `GroupLoss()` when None.

    Raises:
        ValueError: the head is no module, the loss is no `GroupLoss`, or class vectors play and the classifier has no
            weight that could.

    Example:
        >>> import torch
        >>> from entourage.embed import MultiCenterHead, GroupLossWithHead
        >>> loss = GroupLossWithHead(MultiCenterHead(16, 3))
        >>> loss(torch.randn(12, 16), torch.arange(12) % 3).ndim
        0
    """

    def __init__(self, head: nn.Module, loss: GroupLoss | None = None) -> None:
        super().__init__()
        if not isinstance(head, nn.Module):
            raise ValueError(
                f"head is a {type(head).__name__}; expected a module that has logits, e.g. MultiCenterHead(d, m)"
            )
        if loss is not None and not isinstance(loss, GroupLoss):
            raise ValueError(f"loss is a {type(loss).__name__}; expected a GroupLoss, or None for the default")
        self.head = head
        self.loss = GroupLoss() if loss is None else loss
        if self.loss.options.class_players > 0 and not isinstance(getattr(head, "weight", None), Tensor):
            raise ValueError(f"head is a {type(head).__name__} without a weight; expected one, as class vectors play")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: shape (n, d).
            labels: shape (n,), integers from 0 to m - 1.
            indices_tuple: None: nothing is mined, all pairs of the batch play.
            ref_emb: None: earlier batches are the loss' own `memory`.
            ref_labels: None.

        Raises:
            ValueError: if pairs or references are given, and whenever the loss does.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple is given; expected None: all pairs play in the Group Loss, mine none")
        if ref_emb is not None or ref_labels is not None:
            raise ValueError("ref_emb is given; expected None: for earlier batches see the Group Loss' own `memory`")
        vectors = self.head.weight if self.loss.options.class_players > 0 else None
        value: Tensor = self.loss(embeddings, self.get_logits(embeddings), labels, vectors)
        return value

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """What the classifier says, shape (n, m), computed in the precision of its weights.

        Raises:
            ValueError: embeddings are not as long as the classifier expects.
        """
        width = getattr(self.head, "in_features", None)
        if width is not None and embeddings.shape[-1:] != (width,):
            raise ValueError(f"embeddings are of shape {tuple(embeddings.shape)}; the classifier expects (n, {width})")
        precisions = (p.dtype for p in self.head.parameters() if p.is_floating_point())
        logits: Tensor = self.head(embeddings.to(next(precisions, embeddings.dtype)))
        return logits
