"""The Group Loss: embeddings for retrieval and clustering, trained, measured and searched."""

from entourage.embed.anchors import choose_anchors
from entourage.embed.group_loss import GroupLoss, LossParts, refine
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.options import PRESETS, GroupLossOptions, preset
from entourage.embed.sampler import BalancedBatchSampler

__all__ = [
    "PRESETS",
    "BalancedBatchSampler",
    "GroupLoss",
    "GroupLossOptions",
    "LossParts",
    "choose_anchors",
    "preset",
    "refine",
    "retrieval_metrics",
]
