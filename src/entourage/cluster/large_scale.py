"""Clustering of more items than one set holds, in subsets with a shared core.

Cluster numbers of different subsets are not comparable. Therefore every set contains the same random items, the core,
and the clusters of a subset are matched by the core items that they contain. Since the network processes each item
together with the entire core, all subsets are clustered under equal conditions, and the cost is linear in the number
of items. Merging clusterings of disjoint subsets would require a similarity between clusters, which is not trained.

The number of clusters is the most probable one under the mean P(k) of all subsets, and all subsets are evaluated for
this number. Cluster numbers are taken from the subset whose grouping of the core is closest to the mean grouping.
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
"""Function from indices of items, shape (m,), to the network's prediction for this set."""

MIN_SUPPORT = 0.5  # expected number of core items in a cluster, below which it cannot be matched by the core
MAX_CORES = 3  # cores drawn at most; another is drawn if subsets have clusters without core items


@dataclass(frozen=True)
class Partition:
    """Clustering of any number of items.

    Attributes:
        probabilities: probability of each cluster for each item, shape (n, k), rows sum to 1; k is the requested
            number of clusters, or the most probable one. Of several subsets, clusters without any item are removed.
        count: P(k), shape (k_max,); the mean over all subsets.
        n_subsets: number of subsets.
    """

    probabilities: Floats
    count: Floats
    n_subsets: int = 1


class _SubsetPrediction(NamedTuple):
    """Prediction of a subset for k clusters: probabilities of the core items (c, k) and of the others (m, k)."""

    k: int
    core: Floats
    others: Floats


@dataclass(frozen=True)
class _Subsets:
    """Indices of the core, shape (c,), and of each subset, shape (m,); the last subset may be smaller."""

    core: NDArray[np.int64]
    others: list[NDArray[np.int64]]

    @classmethod
    def draw(cls, n: int, core: NDArray[np.int64], set_size: int, rng: np.random.Generator) -> _Subsets:
        """Divide all items except the core into random subsets."""
        others = rng.permutation(np.setdiff1d(np.arange(n), core))
        n_others = set_size - len(core)
        return cls(core, [others[first : first + n_others] for first in range(0, len(others), n_others)])

    def rows(self, index: int) -> NDArray[np.int64]:
        """Return the indices of a set: core, subset, and items of the first subset that fill up the last one."""
        others = self.others[index]
        return np.concatenate([self.core, others, self.others[0][: len(self.others[0]) - len(others)]])

    def select(self, index: int, prediction: SetPrediction, k: int) -> _SubsetPrediction:
        """Select the probabilities for k clusters from the prediction of a subset."""
        probabilities = to_partition(prediction, k).probabilities
        c = len(self.core)
        return _SubsetPrediction(k, probabilities[:c], probabilities[c:][: len(self.others[index])])


def to_partition(prediction: SetPrediction, k: int | None = None) -> Partition:
    """Return the partition of a single set for k clusters; if k is None, for the most probable number."""
    count = prediction.count[0].double().exp().cpu().numpy()
    best = k or 1 + int(count.argmax())
    return Partition(prediction.assignment[0, :, best - 1, :best].double().cpu().numpy(), count)


def cluster_in_subsets(
    predict: PredictSubset, n: int, set_size: int, rng: np.random.Generator, k: int | None = None
) -> Partition:
    """Cluster n items with a network that processes `set_size` items at a time.

    Args:
        predict: the network, as a function of the indices of a set.
        n: number of items.
        set_size: items per set; half of them are the core.
        rng: random generator for the core and the subsets.
        k: number of clusters, if known.

    Returns:
        The partition. Costs n / (set_size / 2) runs of the network; up to three times as many if some clusters have no
        core items, and one more for each subset that was first evaluated for another k. If n exceeds set_size, all sets
        have set_size items: the last one is filled up with items of the first subset.

    Raises:
        ValueError: set_size is less than 4 and less than n.
    """
    if n <= set_size:
        return to_partition(predict(np.arange(n)), k)
    if set_size < 4:
        raise ValueError(f"set_size is {set_size}; expected 4 or more, as half of a set is the core")
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
    """Run the network once on each subset.

    Returns:
        The predictions for k clusters, or for the most probable number under the mean P(k) so far (predictions for all
        numbers would need too much memory); the mean P(k), shape (k_max,); and the items in clusters without core
        items, where each subset is divided into k clusters, or into the number that is most probable for it alone.
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
    """Return the probabilities of all n items, shape (n, k), for the clusters of the reference subset."""
    chosen = _reference_subset(results)
    reference = results[chosen].core  # (c, k)
    probabilities = np.zeros((n, reference.shape[1]))
    probabilities[subsets.core] = reference
    for index, (others, result) in enumerate(zip(subsets.others, results, strict=True)):
        probabilities[others] = result.others if index == chosen else _map_to_reference(result, reference)
    probabilities /= probabilities.sum(1, keepdims=True)
    return probabilities[:, probabilities.sum(0) > 0]


def _reference_subset(results: list[_SubsetPrediction]) -> int:
    """Return the subset whose co-membership matrix of the core has the largest cosine with the mean matrix."""
    mean = sum(result.core @ result.core.T for result in results)  # (c, c), times the number of subsets
    sizes = [np.linalg.norm(result.core.T @ result.core) for result in results]  # also the norm of core core^T
    similarities = [
        np.sum(result.core * (mean @ result.core)) / size for result, size in zip(results, sizes, strict=True)
    ]
    return int(np.argmax(similarities))


def _map_to_reference(result: _SubsetPrediction, reference: Floats) -> Floats:
    """Map probabilities of a subset's clusters to the reference clusters, shape (m, k); rows need not sum to 1."""
    overlap = result.core.T @ reference  # (subset clusters, reference clusters), shared core items
    support = overlap.sum(1)
    mapping = overlap / np.maximum(support, 1e-12)[:, None]
    covered = result.others @ np.where(support[:, None] >= MIN_SUPPORT, mapping, 0)  # (m, reference clusters)
    # Items of a cluster without core items are assigned to the reference cluster with the largest overlap.
    nearest = result.others @ mapping + 1e-12 * reference.mean(0)
    return np.where(covered.sum(1, keepdims=True) > 0.5, covered, nearest)
