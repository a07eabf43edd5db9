"""Embeddings for retrieval and clustering: of any images at once, or trained with the Group Loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.embed.expansion import expand_with_neighbors
    from entourage.embed.index.duplicates import find_duplicates
    from entourage.embed.index.embedder import Embedder
    from entourage.embed.index.export import export
    from entourage.embed.index.vector_index import Index
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
    "Embedder",
    "GroupLoss",
    "GroupLossOptions",
    "GroupLossWithHead",
    "Index",
    "MultiCenterHead",
    "Recipe",
    "baseline_loss",
    "expand_with_neighbors",
    "export",
    "find_duplicates",
    "retrieval_metrics",
    "train_embedding",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "expansion": ("expand_with_neighbors",),
        "index.duplicates": ("find_duplicates",),
        "index.embedder": ("Embedder",),
        "index.export": ("export",),
        "index.vector_index": ("Index",),
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
