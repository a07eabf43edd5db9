"""Active learning: suggest the items to label next, and find given labels that their neighbourhood contradicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction, random_walk_step

MIN_GAIN = 0.05  # minimum summed uncertainty of a neighbourhood for a suggestion


@dataclass(frozen=True)
class Suggestion:
    """An item suggested for labelling.

    Attributes:
        index: index of the item.
        gain: summed uncertainty (1 - confidence) of the item and its neighbours.
        reason: explanation for the user.
    """

    index: int
    gain: float
    reason: str


def suggest_labels(model: GraphTransduction, n_suggestions: int = 12) -> list[Suggestion]:
    """Suggest uncertain items with many uncertain neighbours, each from a different neighbourhood.

    The least confident items alone are a poor choice: they are outliers, whose labels do not help other items. The sum
    of the uncertainties of all neighbours prefers the centre of an uncertain region. After each choice, the uncertainty
    of the items within two steps of it is reduced, so that the next item comes from another region.

    Args:
        model: a fitted model.
        n_suggestions: maximum number of suggestions.

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
    among = f"; {unsure} of its {len(neighbors)} neighbours are uncertain too" if unsure else ""
    return f"its neighbours vote for {split}{among}"


def contradicted_labels(model: GraphTransduction, threshold: float = 0.5) -> NDArray[np.int64]:
    """Return the indices of given labels that their neighbourhood contradicts: likely mistakes, or outliers.

    Args:
        model: a fitted model.
        threshold: minimum probability that a two-step random walk from the item ends at its label.

    Returns:
        Indices, the most contradicted first.
    """
    confidence: Floats = model.confidence_
    contradicted = np.flatnonzero(model.labelled_mask_ & (confidence < threshold))
    return contradicted[np.argsort(confidence[contradicted], kind="stable")]
