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
Look = Callable[[NDArray[np.int64]], SetPrediction]
"""From positions of items, shape (m,), to what the network says of that one set."""

SUPPORT = 0.5  # items of the core that a cluster must hold, in expectation, to be called by its name
ROUNDS = 3  # times that a core may be drawn anew because parts have shown clusters it lacks


@dataclass(frozen=True)
class Partition:
    """Clusters of any number of items.

    Attributes:
        probabilities: of each cluster for each item, shape (n, k), rows sum to 1; k is the likeliest by `count`, unless
            it was given.
        count: P(k), shape (k_max,); the mean over all parts where one look was not enough.
        looks: how many sets the items were looked at in.
    """

    probabilities: Floats
    count: Floats
    looks: int = 1


class _Read(NamedTuple):
    """A part as it was read for k clusters: probabilities for the core's items (c, k) and for its own (m, k)."""

    k: int
    core: Floats
    own: Floats


@dataclass(frozen=True)
class _Parts:
    """The items of the core, shape (c,), and of each part, shape (m,), where only the last may have fewer."""

    core: NDArray[np.int64]
    own: list[NDArray[np.int64]]

    @classmethod
    def drawn(cls, n: int, core: NDArray[np.int64], set_size: int, rng: np.random.Generator) -> _Parts:
        """Parts all items but the core's at random."""
        others = rng.permutation(np.setdiff1d(np.arange(n), core))
        room = set_size - len(core)
        return cls(core, [others[first : first + room] for first in range(0, len(others), room)])

    def seen(self, place: int) -> NDArray[np.int64]:
        """What is looked at together for a part: the core, the part, and what fills the last up."""
        own = self.own[place]
        return np.concatenate([self.core, own, self.own[0][: len(self.own[0]) - len(own)]])

    def read(self, place: int, prediction: SetPrediction, k: int) -> _Read:
        """What the network said of that part, for k clusters."""
        found = read_set(prediction, k).probabilities
        c = len(self.core)
        return _Read(k, found[:c], found[c:][: len(self.own[place])])


def read_set(prediction: SetPrediction, k: int | None = None) -> Partition:
    """The partition of a single set: for a given k, or for the likeliest."""
    count = prediction.count[0].double().exp().cpu().numpy()
    best = k or 1 + int(count.argmax())
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
        The partition. Costs n / (set_size / 2) looks, up to three times if the core lacks clusters, and once more for
        parts that were read for another number than the one that is chosen in the end. Beyond set_size all are of
        set_size items: the last part is filled up with items of the first.
    """
    if n <= set_size:
        return read_set(look(np.arange(n)), k)
    if set_size < 4:
        raise ValueError(f"set_size is {set_size}; expected 4 or more, half of which are seen with every part")
    parts = _Parts.drawn(n, rng.permutation(n)[: set_size // 2], set_size, rng)
    reads, count, strangers = _survey(look, parts, k)
    for _ in range(ROUNDS - 1):
        if not len(strangers):
            break
        joined = rng.permutation(strangers)[: len(parts.core) // 2]
        core = np.concatenate([joined, rng.permutation(parts.core)[: len(parts.core) - len(joined)]])
        parts = _Parts.drawn(n, core, set_size, rng)
        reads, count, strangers = _survey(look, parts, k)
    best = k or 1 + int(count.argmax())
    for place, read in enumerate(reads):
        if read.k != best:
            reads[place] = parts.read(place, look(parts.seen(place)), best)
    return Partition(_named(parts, reads, n), count, len(reads))


def _survey(look: Look, parts: _Parts, k: int | None) -> tuple[list[_Read], Floats, NDArray[np.int64]]:
    """Looks at every part once.

    Returns:
        The parts as read for k clusters, or else for the likeliest number by all parts so far: what a part says for
        every number would be too much to keep. The mean P(k), shape (k_max,). And the items that seem to belong to
        none of the core's clusters, by their own part's likeliest number.
    """
    reads, strangers = [], []
    total: Floats = np.zeros(1)
    for place, own in enumerate(parts.own):
        prediction = look(parts.seen(place))
        count = read_set(prediction).count
        total = total + count
        reads.append(parts.read(place, prediction, k or 1 + int(total.argmax())))
        alone = parts.read(place, prediction, k or 1 + int(count.argmax()))
        known = alone.own[:, alone.core.sum(0) >= SUPPORT].sum(1)  # (m,)
        strangers.append(own[known < 0.5])
    return reads, total / len(reads), np.concatenate(strangers)


def _named(parts: _Parts, reads: list[_Read], n: int) -> Floats:
    """Probabilities of each cluster for all n items, shape (n, k), under the names of one part's clusters."""
    chosen = _most_usual(reads)
    names = reads[chosen].core  # (c, k)
    result = np.zeros((n, names.shape[1]))
    result[parts.core] = names
    for place, (own, read) in enumerate(zip(parts.own, reads, strict=True)):
        result[own] = read.own if place == chosen else _translated(read, names)
    result /= result.sum(1, keepdims=True)
    return result[:, result.sum(0) > 0]


def _most_usual(reads: list[_Read]) -> int:
    """The part that groups the core most as all do on average: by the cosine of who is with whom there."""
    mean = sum(read.core @ read.core.T for read in reads)  # (c, c), times the number of parts
    sizes = [np.linalg.norm(read.core.T @ read.core) for read in reads]  # of core core^T as well
    alike = [np.sum(read.core * (mean @ read.core)) / size for read, size in zip(reads, sizes, strict=True)]
    return int(np.argmax(alike))


def _translated(read: _Read, names: Floats) -> Floats:
    """The part's own items under the names of the core's clusters, shape (m, k); rows need not sum to 1."""
    shared = read.core.T @ names  # (its clusters, names), items of the core that two clusters share
    support = shared.sum(1)
    translation = shared / np.maximum(support, 1e-12)[:, None]
    known = read.own @ np.where(support[:, None] >= SUPPORT, translation, 0)  # (m, names)
    # Who belongs to no cluster of the core is, as long as the core lacks it, likened to the nearest there is.
    forced = read.own @ translation + 1e-12 * names.mean(0)
    return np.where(known.sum(1, keepdims=True) > 0.5, known, forced)
