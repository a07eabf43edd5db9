"""Options of the graph transduction game, and the three ways to play it that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entourage.game.graph import Affinity, Symmetry


@dataclass(frozen=True)
class TransductionOptions:
    """What `GraphTransduction` is built from; each field is the constructor argument of that name."""

    n_neighbors: int | Literal["auto"] | None = "auto"  # floor(log2 n) + 1
    affinity: Affinity | Literal["precomputed"] = "self_tuning"
    squared: bool = True  # exp(-d^2 / ...), as Zelnik-Manor and Perona published it
    symmetrize: Symmetry = "mean"  # better than "max" on CIFAR-10 and Caltech-101 by up to 0.7 points, equal on digits
    normalize: bool = True  # D^-1/2 W D^-1/2: worth two points on CIFAR-10 features at every label count
    walk: int = 30  # steps: worth four points on digits with one label a class, two on CIFAR-10 features
    max_iter: int = 1000
    tol: float | None = 1e-4


PRESETS: dict[str, TransductionOptions] = {
    "default": TransductionOptions(),
    "thesis": TransductionOptions(
        n_neighbors=None,  # the text speaks of all pairs and of no sparsification: O(n^2) memory
        normalize=False,  # nor of any normalisation
        walk=0,  # everybody starts undecided
    ),
    "original": TransductionOptions(
        squared=False,  # the code forgot the square of the distance
        symmetrize="max",
        normalize=False,
        walk=0,
        max_iter=25,  # its Augmenter played a fixed number of rounds...
        tol=None,  # ...without looking whether they sufficed
    ),
}


def preset(name: str) -> TransductionOptions:
    """The options of that name; a ValueError lists the names there are."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is unknown; expected one of {', '.join(PRESETS)}")
    return PRESETS[name]
