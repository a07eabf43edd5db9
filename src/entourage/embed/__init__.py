"""The Group Loss: embeddings for retrieval and clustering, trained, measured and searched."""

from entourage.embed.losses.group_loss import GroupLoss, GroupLossTerms, sample_anchors
from entourage.embed.losses.options import PRESETS, GroupLossOptions, preset
from entourage.embed.losses.pml import BASELINE_LOSSES, GroupLossWithHead, baseline_loss
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import CosineHead, MultiCenterHead, make_head
from entourage.embed.training.sampler import BalancedBatchSampler

__all__ = [
    "PRESETS",
    "BASELINE_LOSSES",
    "BalancedBatchSampler",
    "MultiCenterHead",
    "CosineHead",
    "GroupLoss",
    "GroupLossOptions",
    "GroupLossWithHead",
    "GroupLossTerms",
    "sample_anchors",
    "make_head",
    "preset",
    "retrieval_metrics",
    "baseline_loss",
]
