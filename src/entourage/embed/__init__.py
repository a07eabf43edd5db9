"""The Group Loss: embeddings for retrieval and clustering, trained, measured and searched."""

from entourage.embed.adapter import GroupLossWithHead
from entourage.embed.anchors import choose_anchors
from entourage.embed.group_loss import GroupLoss, LossParts
from entourage.embed.heads import CentresHead, CosineHead, make_head
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.options import PRESETS, GroupLossOptions, preset
from entourage.embed.rivals import RIVALS, rival
from entourage.embed.sampler import BalancedBatchSampler

__all__ = [
    "PRESETS",
    "RIVALS",
    "BalancedBatchSampler",
    "CentresHead",
    "CosineHead",
    "GroupLoss",
    "GroupLossOptions",
    "GroupLossWithHead",
    "LossParts",
    "choose_anchors",
    "make_head",
    "preset",
    "retrieval_metrics",
    "rival",
]
