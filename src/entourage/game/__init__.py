"""Similarity graphs and replicator dynamics on them: dense or sparse, with or without gradients, on CPU or GPU."""

from entourage.game.dynamics import ReplicatorResult, consistency, log_replicator, replicator
from entourage.game.graph import NeighborGraph, normalize_degrees, symmetrize
from entourage.game.neighbors import NeighborSearch
from entourage.game.similarity import clamp, cosine, gaussian, pearson, self_tuning, shift

__all__ = [
    "NeighborGraph",
    "NeighborSearch",
    "ReplicatorResult",
    "clamp",
    "consistency",
    "cosine",
    "gaussian",
    "log_replicator",
    "normalize_degrees",
    "pearson",
    "replicator",
    "self_tuning",
    "shift",
    "symmetrize",
]
