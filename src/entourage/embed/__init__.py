"""The Group Loss: embeddings for retrieval and clustering, trained, measured and searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.embed.losses.group_loss import GroupLoss
    from entourage.embed.losses.options import GroupLossOptions
    from entourage.embed.losses.pml import BASELINE_LOSSES, GroupLossWithHead, baseline_loss
    from entourage.embed.metrics import retrieval_metrics
    from entourage.embed.models import CosineHead, MultiCenterHead
    from entourage.embed.training.fit import train_embedding
    from entourage.embed.training.recipes import Recipe
    from entourage.embed.training.sampler import BalancedBatchSampler

__all__ = [
    "BASELINE_LOSSES",
    "BalancedBatchSampler",
    "CosineHead",
    "GroupLoss",
    "GroupLossOptions",
    "GroupLossWithHead",
    "MultiCenterHead",
    "Recipe",
    "baseline_loss",
    "retrieval_metrics",
    "train_embedding",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "losses.group_loss": ("GroupLoss",),
        "losses.options": ("GroupLossOptions",),
        "losses.pml": ("BASELINE_LOSSES", "GroupLossWithHead", "baseline_loss"),
        "metrics": ("retrieval_metrics",),
        "models": ("CosineHead", "MultiCenterHead"),
        "training.fit": ("train_embedding",),
        "training.recipes": ("Recipe",),
        "training.sampler": ("BalancedBatchSampler",),
    },
)
