"""Pretrained image networks, and the features they give."""

from entourage.backbones.backbone import Backbone
from entourage.backbones.cache import cached_features, default_cache_dir
from entourage.backbones.efficientnet_lite import freeze
from entourage.backbones.extract import Extraction, extract_features
from entourage.backbones.norm import keep_statistics
from entourage.backbones.preprocessing import Preprocessing
from entourage.backbones.registry import BACKBONE_NAMES, load_backbone
from entourage.backbones.split import Stem, Tail, split_backbone

__all__ = [
    "BACKBONE_NAMES",
    "Backbone",
    "Extraction",
    "Preprocessing",
    "Stem",
    "Tail",
    "cached_features",
    "default_cache_dir",
    "extract_features",
    "freeze",
    "keep_statistics",
    "load_backbone",
    "split_backbone",
]
