"""Which items to label next, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction, random_walk_step

MIN_GAIN = 0.05  # less doubt than this in a whole neighbourhood is none


@dataclass(frozen=True)
class Suggestion:
    """An item whose label would help most.

    Attributes:
        index: its position.
        gain: how much doubt its label would touch: its own and its neighbours' lack of confidence, added up.
        reason: why it was chosen, for people.
    """

    index: int
    gain: float
    reason: str


def suggest_labels(model: GraphTransduction, n_suggestions: int = 12) -> list[Suggestion]:
    """Chooses items that are in doubt and have many neighbours in doubt, each from another neighbourhood.

    The least sure items alone are a poor choice: they are outliers whose label helps nobody. Counting the doubt of all
    neighbours prefers the middle of a confused region; what a chosen item can settle is then taken off its surroundings
    (two steps around it), so that the next one comes from elsewhere.

    Args:
        model: a fitted game.
        n_suggestions: how many to choose, at most.

    Returns:
        Suggestions, best first. Costs O(n_suggestions nnz(W)).
    """
    w = model.graph_
    adjacency = w.astype(bool).astype(np.float32)
    labelled = model.labelled_mask_
    uncertainty = np.where(labelled, 0, 1 - model.confidence_).astype(np.float64)
    chosen: list[Suggestion] = []
    for _ in range(min(n_suggestions, int((~labelled).sum()))):
        gain = np.asarray(adjacency @ uncertainty) + uncertainty
        gain[labelled] = -1
        gain[[s.index for s in chosen]] = -1
        best = int(gain.argmax())
        if gain[best] < MIN_GAIN:
            break
        chosen.append(Suggestion(best, float(gain[best]), _reason(model, best)))
        indicator = np.zeros((w.shape[0], 1), dtype=np.float32)
        indicator[best] = 1
        covered = random_walk_step(w, random_walk_step(w, indicator)).ravel()
        covered[best] = 0
        uncertainty *= 1 - covered / max(covered.max(), np.finfo(np.float32).tiny)
        uncertainty[best] = 0
    return chosen


def _reason(model: GraphTransduction, index: int) -> str:
    row = model.graph_[index]
    neighbors = row.indices
    if index in model.unreached_:
        return f"no label reaches it or its {len(neighbors)} neighbours"
    votes = (row @ model.label_distributions_).ravel()
    votes = votes / max(votes.sum(), np.finfo(np.float32).tiny)
    unsure = int((model.confidence_[neighbors] < 0.75).sum())
    best = np.argsort(-votes)[:2]
    split = " and ".join(f"{model.classes_[c]} ({votes[c]:.0%})" for c in best if votes[c] >= 0.005)
    among = f"; {unsure} of its {len(neighbors)} neighbours are in doubt too" if unsure else ""
    return f"its neighbours vote for {split}{among}"


def contradicted_labels(model: GraphTransduction, threshold: float = 0.5) -> NDArray[np.int64]:
    """Given labels that most of the surroundings contradict, the most contradicted first: mistakes, or outliers.

    Args:
        model: a fitted game.
        threshold: the share of a two-step walk that has to end at the given label for it to be in order.
    """
    confidence: Floats = model.confidence_
    contradicted = np.flatnonzero(model.labelled_mask_ & (confidence < threshold))
    return contradicted[np.argsort(confidence[contradicted], kind="stable")]
