"""Data sets larger than one set, clustered coherently: every part is seen together with the same core.

Clusters of two parts cannot be compared by their numbers. So a random core is part of every set: what a part's cluster
is called is what the core's items in it are called. Since the network judges every item in the company of the whole
core, parts are judged alike, and the cost is linear in the number of items. Merging clusterings of disjoint parts
afterwards would need a second notion of similarity, between clusters, which nobody has trained.

All parts have a say in how many clusters there are, the likeliest number by the mean of their P(k), and all are then
read for that number. No part is the first: names are those of the part that groups the core most as the others do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entourage.cluster.models.assignment import SetPrediction

Floats = NDArray[np.float64]
PredictSubset = Callable[[NDArray[np.int64]], SetPrediction]
"""From positions of items, shape (m,), to what the network says of that one set."""

MIN_SUPPORT = 0.5  # items of the core that a cluster must hold, in expectation, to be called by its name
MAX_CORES = 3  # times that a core may be drawn anew because parts have shown clusters it lacks


@dataclass(frozen=True)
class Partition:
    """Clusters of any number of items.

    Attributes:
        probabilities: of each cluster for each item, shape (n, k), rows sum to 1; k is the likeliest by `count`, unless
            it was given.
        count: P(k), shape (k_max,); the mean over all parts where one look was not enough.
        n_subsets: how many sets the items were looked at in.
    """

    probabilities: Floats
    count: Floats
    n_subsets: int = 1


class _SubsetPrediction(NamedTuple):
    """A part as it was read for k clusters: probabilities for the core's items (c, k) and for its own (m, k)."""

    k: int
    core: Floats
    others: Floats


@dataclass(frozen=True)
class _Subsets:
    """The items of the core, shape (c,), and of each part, shape (m,), where only the last may have fewer."""

    core: NDArray[np.int64]
    others: list[NDArray[np.int64]]

    @classmethod
    def draw(cls, n: int, core: NDArray[np.int64], set_size: int, rng: np.random.Generator) -> _Subsets:
        """Parts all items but the core's at random."""
        others = rng.permutation(np.setdiff1d(np.arange(n), core))
        n_others = set_size - len(core)
        return cls(core, [others[first : first + n_others] for first in range(0, len(others), n_others)])

    def rows(self, index: int) -> NDArray[np.int64]:
        """What is looked at together for a part: the core, the part, and what fills the last up."""
        others = self.others[index]
        return np.concatenate([self.core, others, self.others[0][: len(self.others[0]) - len(others)]])

    def select(self, index: int, prediction: SetPrediction, k: int) -> _SubsetPrediction:
        """What the network said of that part, for k clusters."""
        probabilities = to_partition(prediction, k).probabilities
        c = len(self.core)
        return _SubsetPrediction(k, probabilities[:c], probabilities[c:][: len(self.others[index])])


def to_partition(prediction: SetPrediction, k: int | None = None) -> Partition:
    """The partition of a single set: for a given k, or for the likeliest."""
    count = prediction.count[0].double().exp().cpu().numpy()
    best = k or 1 + int(count.argmax())
    return Partition(prediction.assignment[0, :, best - 1, :best].double().cpu().numpy(), count)


def cluster_in_subsets(
    predict: PredictSubset, n: int, set_size: int, rng: np.random.Generator, k: int | None = None
) -> Partition:
    """Clusters n items, of which the network looks at `set_size` at a time.

    Args:
        predict: runs the network.
        n: how many items there are.
        set_size: how many it looks at together; half of them are the core.
        rng: draws the core and the parts.
        k: the number of clusters, if it is known.

    Returns:
        The partition. Costs n / (set_size / 2) looks, up to three times if the core lacks clusters, and once more for
        parts that were read for another number than the one that is chosen in the end. Beyond set_size all are of
        set_size items: the last part is filled up with items of the first.
    """
    if n <= set_size:
        return to_partition(predict(np.arange(n)), k)
    if set_size < 4:
        raise ValueError(f"set_size is {set_size}; expected 4 or more, half of which are seen with every part")
    subsets = _Subsets.draw(n, rng.permutation(n)[: set_size // 2], set_size, rng)
    results, count, uncovered = _predict_subsets(predict, subsets, k)
    for _ in range(MAX_CORES - 1):
        if not len(uncovered):
            break
        added = rng.permutation(uncovered)[: len(subsets.core) // 2]
        core = np.concatenate([added, rng.permutation(subsets.core)[: len(subsets.core) - len(added)]])
        subsets = _Subsets.draw(n, core, set_size, rng)
        results, count, uncovered = _predict_subsets(predict, subsets, k)
    best = k or 1 + int(count.argmax())
    for index, result in enumerate(results):
        if result.k != best:
            results[index] = subsets.select(index, predict(subsets.rows(index)), best)
    return Partition(_merge(subsets, results, n), count, len(results))


def _predict_subsets(
    predict: PredictSubset, subsets: _Subsets, k: int | None
) -> tuple[list[_SubsetPrediction], Floats, NDArray[np.int64]]:
    """Looks at every part once.

    Returns:
        The parts as read for k clusters, or else for the likeliest number by all parts so far: what a part says for
        every number would be too much to keep. The mean P(k), shape (k_max,). And the items that seem to belong to
        none of the core's clusters, by their own part's likeliest number.
    """
    results, uncovered = [], []
    total: Floats = np.zeros(1)
    for index, others in enumerate(subsets.others):
        prediction = predict(subsets.rows(index))
        count = to_partition(prediction).count
        total = total + count
        results.append(subsets.select(index, prediction, k or 1 + int(total.argmax())))
        separate = subsets.select(index, prediction, k or 1 + int(count.argmax()))
        covered = separate.others[:, separate.core.sum(0) >= MIN_SUPPORT].sum(1)  # (m,)
        uncovered.append(others[covered < 0.5])
    return results, total / len(results), np.concatenate(uncovered)


def _merge(subsets: _Subsets, results: list[_SubsetPrediction], n: int) -> Floats:
    """Probabilities of each cluster for all n items, shape (n, k), under the names of one part's clusters."""
    chosen = _reference_subset(results)
    reference = results[chosen].core  # (c, k)
    probabilities = np.zeros((n, reference.shape[1]))
    probabilities[subsets.core] = reference
    for index, (others, result) in enumerate(zip(subsets.others, results, strict=True)):
        probabilities[others] = result.others if index == chosen else _map_to_reference(result, reference)
    probabilities /= probabilities.sum(1, keepdims=True)
    return probabilities[:, probabilities.sum(0) > 0]


def _reference_subset(results: list[_SubsetPrediction]) -> int:
    """The part that groups the core most as all do on average: by the cosine of who is with whom there."""
    mean = sum(result.core @ result.core.T for result in results)  # (c, c), times the number of parts
    sizes = [np.linalg.norm(result.core.T @ result.core) for result in results]  # of core core^T as well
    similarities = [
        np.sum(result.core * (mean @ result.core)) / size for result, size in zip(results, sizes, strict=True)
    ]
    return int(np.argmax(similarities))


def _map_to_reference(result: _SubsetPrediction, reference: Floats) -> Floats:
    """The part's own items under the names of the core's clusters, shape (m, k); rows need not sum to 1."""
    overlap = result.core.T @ reference  # (its clusters, names), items of the core that two clusters share
    support = overlap.sum(1)
    mapping = overlap / np.maximum(support, 1e-12)[:, None]
    covered = result.others @ np.where(support[:, None] >= MIN_SUPPORT, mapping, 0)  # (m, names)
    # Who belongs to no cluster of the core is, as long as the core lacks it, likened to the nearest there is.
    nearest = result.others @ mapping + 1e-12 * reference.mean(0)
    return np.where(covered.sum(1, keepdims=True) > 0.5, covered, nearest)
