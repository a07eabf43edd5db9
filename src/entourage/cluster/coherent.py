"""Data sets larger than one set, clustered coherently: every part is seen together with the same core.

Clusters of two parts cannot be compared by their numbers. So a random core is part of every set: what a part's cluster
is called is what the core's items in it are called. Since the network judges every item in the company of the whole
core, parts are judged alike, and the cost is linear in the number of items. Merging clusterings of disjoint parts
afterwards would need a second notion of similarity, between clusters, which nobody has trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.cluster.prediction import SetPrediction

Floats = NDArray[np.float64]
Look = Callable[[NDArray[np.int64]], SetPrediction]
"""From positions of items, shape (m,), to what the network says of that one set."""

SUPPORT = 0.5  # items of the core that a cluster must hold, in expectation, to be called by its name
ROUNDS = 3  # times that a core may be drawn anew because parts have shown clusters it lacks


@dataclass(frozen=True)
class Partition:
    """Clusters of any number of items.

    Attributes:
        probabilities: of each cluster for each item, shape (n, k), rows sum to 1.
        count: P(k), shape (k_max,); the mean over all looks where one was not enough.
        looks: how many sets the items were looked at in.
    """

    probabilities: Floats
    count: Floats
    looks: int = 1


def read_set(prediction: SetPrediction, k: int | None = None, least: int = 1) -> Partition:
    """The partition of a single set: for a given k, or for the likeliest of at least `least`."""
    count = prediction.count[0].double().exp().cpu().numpy()
    best = k or least + int(count[least - 1 :].argmax())
    return Partition(prediction.assignment[0, :, best - 1, :best].double().cpu().numpy(), count)


def cluster_coherently(look: Look, n: int, set_size: int, rng: np.random.Generator, k: int | None = None) -> Partition:
    """Clusters n items, of which the network looks at `set_size` at a time.

    Args:
        look: asks the network.
        n: how many items there are.
        set_size: how many it looks at together; half of them are the core.
        rng: draws the core and the parts.
        k: the number of clusters, if it is known.

    Returns:
        The partition. Costs n / (set_size / 2) looks, up to three times if the core lacks clusters. Beyond set_size all
        are of set_size items: the last part is filled up with items of the first.
    """
    if n <= set_size:
        return read_set(look(np.arange(n)), k)
    if set_size < 4:
        raise ValueError(f"set_size is {set_size}; expected 4 or more, half of which are seen with every part")
    core = rng.permutation(n)[: set_size // 2]
    partition, strangers = _with_core(look, n, core, set_size, rng, k)
    for _ in range(ROUNDS - 1):
        if k is not None or not len(strangers):
            break
        joined = rng.permutation(strangers)[: len(core) // 2]
        core = np.concatenate([joined, rng.permutation(core)[: len(core) - len(joined)]])
        partition, strangers = _with_core(look, n, core, set_size, rng, k)
    return partition


def _with_core(
    look: Look, n: int, core: NDArray[np.int64], set_size: int, rng: np.random.Generator, k: int | None
) -> tuple[Partition, NDArray[np.int64]]:
    """Clusters everything by the names of one core; also the items that seem to belong to none of its clusters."""
    others = rng.permutation(np.setdiff1d(np.arange(n), core))
    room = set_size - len(core)
    parts = [others[first : first + room] for first in range(0, len(others), room)]
    first = read_set(look(np.concatenate([core, parts[0]])), k)
    named = first.probabilities[:, first.probabilities.sum(0) > 0]
    clusters = named.shape[1]
    result = np.zeros((n, clusters))
    result[np.concatenate([core, parts[0]])] = named
    names = result[core]  # (c, clusters)
    strangers, counts = [], [first.count]
    for part in parts[1:]:
        filler = parts[0][: room - len(part)]  # none but for the last part
        answer = read_set(look(np.concatenate([core, part, filler])), k, least=clusters)
        counts.append(answer.count)
        in_core, in_part = answer.probabilities[: len(core)], answer.probabilities[len(core) :][: len(part)]
        shared = in_core.T @ names  # (its clusters, clusters), items of the core that two clusters share
        support = shared.sum(1)
        translation = shared / np.maximum(support, 1e-12)[:, None]
        known = in_part @ np.where(support[:, None] >= SUPPORT, translation, 0)  # (part, clusters)
        total = known.sum(1)
        strangers.append(part[total < 0.5])
        # Who belongs to no cluster of the core is, as long as the core lacks it, likened to the nearest there is.
        forced = in_part @ translation
        result[part] = np.where(total[:, None] > 0.5, known, forced)
        result[part] /= result[part].sum(1, keepdims=True).clip(1e-12)
    used = result.sum(0) > 0
    partition = Partition(result[:, used], np.mean(counts, axis=0), len(parts))
    return partition, np.concatenate([*strangers, np.empty(0, dtype=np.int64)])
