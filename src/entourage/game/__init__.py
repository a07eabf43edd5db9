"""The game: replicator dynamics on a similarity graph, dense or sparse, differentiable or not, CPU or GPU."""

from entourage.game.cells import nearest_centre, smallest, squared_to
from entourage.game.dynamics import Play, balance, consistency, replicator, revise, support
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
from entourage.game.log_dynamics import log_replicator
from entourage.game.neighbours import Neighbours, NeighbourSearch
from entourage.game.similarity import centre, clamp, cosine, directions, gaussian, pearson, self_tuning, shift
from entourage.game.walk import heard, informed

__all__ = [
    "Affinity",
    "Negatives",
    "NeighbourGraph",
    "NeighbourSearch",
    "Neighbours",
    "Play",
    "Symmetry",
    "auto_neighbours",
    "balance",
    "centre",
    "clamp",
    "consistency",
    "cosine",
    "degree_normalized",
    "directions",
    "gaussian",
    "heard",
    "informed",
    "log_replicator",
    "nearest_centre",
    "needed_lift",
    "pearson",
    "replicator",
    "revise",
    "self_tuning",
    "shift",
    "smallest",
    "sparsified",
    "squared_to",
    "support",
    "symmetrized",
    "to_torch",
]
