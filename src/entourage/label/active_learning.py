"""Which items to label next, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction, walked

LEAST_GAIN = 0.05  # less doubt than this in a whole neighbourhood is none


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


def suggest(model: GraphTransduction, count: int = 12) -> list[Suggestion]:
    """Chooses items that are in doubt and have many neighbours in doubt, each from another neighbourhood.

    The least sure items alone are a poor choice: they are outliers whose label helps nobody. Counting the doubt of all
    neighbours prefers the middle of a confused region; what a chosen item can settle is then taken off its surroundings
    (two steps around it), so that the next one comes from elsewhere.

    Args:
        model: a fitted game.
        count: how many to choose, at most.

    Returns:
        Suggestions, best first. Costs O(count nnz(W)).
    """
    w = model.graph_
    neighbours = w.astype(bool).astype(np.float32)
    labelled = model.given_
    doubt = np.where(labelled, 0, 1 - model.confidence_).astype(np.float64)
    chosen: list[Suggestion] = []
    for _ in range(min(count, int((~labelled).sum()))):
        gain = np.asarray(neighbours @ doubt) + doubt
        gain[labelled] = -1
        gain[[s.index for s in chosen]] = -1
        best = int(gain.argmax())
        if gain[best] < LEAST_GAIN:
            break
        chosen.append(Suggestion(best, float(gain[best]), _reason(model, best)))
        spot = np.zeros((w.shape[0], 1), dtype=np.float32)
        spot[best] = 1
        settled = walked(w, walked(w, spot)).ravel()
        settled[best] = 0
        doubt *= 1 - settled / max(settled.max(), np.finfo(np.float32).tiny)
        doubt[best] = 0
    return chosen


def _reason(model: GraphTransduction, index: int) -> str:
    row = model.graph_[index]
    around = row.indices
    if index in model.unreached_:
        return f"no label reaches it or its {len(around)} neighbours"
    votes = (row @ model.label_distributions_).ravel()
    votes = votes / max(votes.sum(), np.finfo(np.float32).tiny)
    unsure = int((model.confidence_[around] < 0.75).sum())
    best = np.argsort(-votes)[:2]
    split = " and ".join(f"{model.classes_[c]} ({votes[c]:.0%})" for c in best if votes[c] >= 0.005)
    among = f"; {unsure} of its {len(around)} neighbours are in doubt too" if unsure else ""
    return f"its neighbours vote for {split}{among}"


def disputed(model: GraphTransduction, below: float = 0.5) -> NDArray[np.int64]:
    """Given labels that most of the surroundings contradict, the most contradicted first: mistakes, or outliers.

    Args:
        model: a fitted game.
        below: the share of a two-step walk that has to end at the given label for it to be in order.
    """
    confidence: Floats = model.confidence_
    doubtful = np.flatnonzero(model.given_ & (confidence < below))
    return doubtful[np.argsort(confidence[doubtful], kind="stable")]
