"""One game of a round: features make a graph, and a labeller finds a label for every image over it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from torch import Tensor

from entourage.game.graph import Affinity, NeighbourGraph
from entourage.game.similarity import directions
from entourage.label.base import GraphLabeller
from entourage.label.relate import checked_graph
from entourage.label.semi_supervised.balance import fit_labeller
from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.given import FoundLabels
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.validate import held_out_accuracy
from entourage.label.svm import LinearSVMLabeller
from entourage.label.targets import Floats


class Finding(NamedTuple):
    """What a game came to.

    Attributes:
        found: a label for every image.
        score: how well given labels that were hidden are found over the same graph; None if no class has two.
        labeller: fitted; its classes are numbered as the examples' are.
    """

    found: FoundLabels
    score: float | None
    labeller: GraphLabeller


def find_labels(
    features: Tensor,
    examples: Examples,
    labeller: GraphLabeller,
    options: AugmentOptions,
    prior: Floats | None = None,
) -> Finding:
    """Label all images over the graph of their features.

    Args:
        features: shape (n, d), on the device where the game is played.
        examples: the labels that are known; images are not looked at.
        labeller: unfitted; it is left so.
        options: how features compare, how many neighbours a labeller gets that leaves it open, and whether classes
            are held to the frequencies of the given labels.
        prior: what is known beforehand of each image, shape (n, m), or None.
    """
    graph = graph_of(features, labeller, options)  # once, for all folds and the game itself
    chosen = clone(labeller).set_params(classes=np.arange(examples.classes), device=str(features.device))
    score = held_out_accuracy(chosen, graph, examples.codes, prior, balance=options.balance)
    fitted = fit_labeller(clone(chosen), graph, examples.codes, prior, balance=options.balance)
    return Finding(FoundLabels.of(fitted), score, fitted)


def graph_of(features: Tensor, labeller: GraphLabeller, options: AugmentOptions) -> sparse.csr_matrix:
    """The graph that a labeller plays on: as its own arguments say, shape (n, n).

    A linear SVM, which looks at no neighbours, gets the features themselves in its place, shape (n, d).
    """
    affinity = checked_affinity(labeller)
    points = directions(features) if options.metric == "cosine" else features
    if isinstance(labeller, LinearSVMLabeller):
        return sparse.csr_matrix(points.cpu().numpy())
    graph = NeighbourGraph(
        points,
        options.neighbours if labeller.n_neighbors == "auto" else labeller.n_neighbors,
        affinity=affinity,
        squared=labeller.squared,
        negatives=labeller.negatives,
        symmetrize=labeller.symmetrize,
        normalize=labeller.normalize,
    )
    return checked_graph(graph.w, labeller.negatives)[0]


def checked_affinity(labeller: GraphLabeller) -> Affinity:
    """The affinity of a labeller's graph; one that expects a graph from outside is refused, as each round makes one."""
    if labeller.affinity == "precomputed":
        raise ValueError(
            f"affinity of {type(labeller).__name__} is 'precomputed'; expected one that makes a graph of features, "
            "as these are new in every round"
        )
    return labeller.affinity
