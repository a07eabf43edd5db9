"""Active learning: suggest the items to label next, and find given labels that their neighbourhood contradicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from entourage.label.ensemble.auto import AutoTransduction
from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction
from entourage.validation import check_choice

Strategy = Literal["random", "least_confident", "uncertain_region", "coverage", "mixed", "uncertain_coverage"]

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


def suggest_labels(model: GraphTransduction | AutoTransduction, n_suggestions: int = 12) -> list[Suggestion]:
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
    chosen = select_items(
        model.graph_, model.labelled_mask_, model.confidence_, n_suggestions, "uncertain_region", min_gain=MIN_GAIN
    )
    return [Suggestion(index, gain, explain_label(model, index)) for index, gain in chosen]


def select_items(
    w: sparse.csr_matrix,
    excluded: NDArray[np.bool_],
    confidence: Floats,
    n_items: int,
    strategy: Strategy = "coverage",
    *,
    seed: int = 0,
    min_gain: float = -np.inf,
) -> list[tuple[int, float]]:
    """Select the items to label next; `experiments/label_suggestions.py` compares the strategies.

    Args:
        w: similarities, shape (n, n), symmetric.
        excluded: mask of the items that are labelled or must not be selected, shape (n,).
        confidence: confidence of the present labels, shape (n,); 0 where there is no label.
        n_items: maximum number of items.
        strategy: "random"; "least_confident"; "uncertain_region": many uncertain neighbours, one item from each
            neighbourhood; "coverage": many neighbours that are far from all excluded items, one from each
            neighbourhood; "mixed": "coverage" and "uncertain_region" in turn; "uncertain_coverage": their product, many
            uncertain neighbours that are far from all excluded items.
        seed: random seed of "random".
        min_gain: stop at items of less gain.

    Returns:
        Indices and gains, best first. Costs O(n_items nnz(w)), and two walks from each excluded item for "coverage".

    Raises:
        ValueError: the strategy does not exist.
    """
    check_choice("strategy", strategy, Strategy)
    n_items = min(n_items, int((~excluded).sum()))
    if strategy == "random":
        order = np.random.default_rng(seed).permutation(np.flatnonzero(~excluded))[:n_items]
        return [(int(index), 0.0) for index in order]
    uncertainty = np.where(excluded, 0, 1 - confidence).astype(np.float64)
    if strategy == "least_confident":
        order = np.argsort(np.where(excluded, -1, uncertainty), kind="stable")[::-1][:n_items]
        return [(int(index), float(uncertainty[index])) for index in order if uncertainty[index] >= min_gain]
    walks = _Walks(w)
    if strategy == "uncertain_region":
        return _select_regions(walks, [uncertainty], excluded, n_items, min_gain)
    uncovered = np.where(excluded, 0, walks.uncovered(np.flatnonzero(excluded)))
    weights = {
        "coverage": [uncovered],
        "mixed": [uncovered, uncertainty],
        "uncertain_coverage": [uncovered * uncertainty],
    }
    return _select_regions(walks, weights[strategy], excluded, n_items, min_gain)


class _Walks:
    """Two-step walks from single items; each costs the size of a neighbourhood, not that of the graph."""

    def __init__(self, w: sparse.csr_matrix) -> None:
        degree = np.asarray(w.sum(axis=1)).ravel()
        self.graph, self.per_degree = w, 1 / np.where(degree > 0, degree, 1)
        self.adjacency = sparse.csr_matrix((np.ones(w.nnz, dtype=np.float32), w.indices, w.indptr), w.shape)

    def covered(self, items: NDArray[np.int64]) -> sparse.csr_matrix:
        """Return for each item the probability that walks to it reach it, relative to the largest, shape (k, n)."""
        first = sparse.csr_matrix(self.graph[items].multiply(self.per_degree))
        second = sparse.csr_matrix((first @ self.graph).multiply(self.per_degree))
        second.data[second.indices == np.repeat(items, np.diff(second.indptr))] = 0
        largest = second.max(axis=1).toarray()
        return sparse.csr_matrix(second.multiply(1 / np.maximum(largest, np.finfo(np.float32).tiny)))

    def uncovered(self, items: NDArray[np.int64]) -> Floats:
        """Return the product of 1 - covered over items, shape (n,), in blocks of items."""
        logarithm = np.zeros(self.graph.shape[0])
        for block in np.array_split(items, max(1, len(items) // 1024)):
            covered = self.covered(block)
            covered.data = np.log1p(-covered.data.clip(max=1 - 1e-6))
            logarithm += np.asarray(covered.sum(axis=0)).ravel()
        return np.asarray(np.exp(logarithm))


def _select_regions(
    walks: _Walks, weights: list[Floats], excluded: NDArray[np.bool_], n_items: int, min_gain: float
) -> list[tuple[int, float]]:
    """Select items of the largest summed weight of their neighbourhoods; several kinds of weights take turns."""
    turn = int(excluded.sum())  # of the item, also if one is selected at a time
    weights, candidates = [weight.copy() for weight in weights], ~excluded
    gains = [walks.adjacency @ weight + weight for weight in weights]
    chosen: list[tuple[int, float]] = []
    while len(chosen) < n_items:
        gain = np.where(candidates, gains[(turn + len(chosen)) % len(gains)], -np.inf)
        best = int(gain.argmax())
        if gain[best] < min_gain:
            break
        chosen.append((best, float(gain[best])))
        candidates[best] = False
        covered = walks.covered(np.array([best]))
        others = covered.indices != best
        items, fractions = np.append(covered.indices[others], best), np.append(covered.data[others], 1.0)
        for weight, total in zip(weights, gains, strict=True):
            change = -weight[items] * fractions
            weight[items] += change
            total[items] += change
            # Only neighbours of covered items gain less: a fraction of a product with the whole graph.
            row = sparse.csr_matrix((change, (np.zeros_like(items), items)), (1, len(weight))) @ walks.adjacency
            total[row.indices] += row.data
    return chosen


def explain_label(model: GraphTransduction | AutoTransduction, index: int) -> str:
    """Return the reason for the label of an item in one phrase: the votes of its neighbours in the graph."""
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


def contradicted_labels(model: GraphTransduction | AutoTransduction, threshold: float = 0.5) -> NDArray[np.int64]:
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
