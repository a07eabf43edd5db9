"""The game: replicator dynamics on a similarity graph, dense or sparse, differentiable or not, CPU or GPU."""

from entourage.game.dynamics import Play, consistency, replicator, revise, support
from entourage.game.graph import (
    Affinity,
    Negatives,
    NeighbourGraph,
    Symmetry,
    auto_neighbours,
    degree_normalized,
    needed_lift,
    sparsified,
    symmetrized,
    to_torch,
)
from entourage.game.neighbours import Neighbours, NeighbourSearch
from entourage.game.similarity import clamp, cosine, directions, gaussian, pearson, self_tuning, shift

__all__ = [
    "Affinity",
    "Negatives",
    "NeighbourGraph",
    "NeighbourSearch",
    "Neighbours",
    "Play",
    "Symmetry",
    "auto_neighbours",
    "clamp",
    "consistency",
    "cosine",
    "degree_normalized",
    "directions",
    "gaussian",
    "needed_lift",
    "pearson",
    "replicator",
    "revise",
    "self_tuning",
    "shift",
    "sparsified",
    "support",
    "symmetrized",
    "to_torch",
]
