"""What a network that clusters learns from: sets of items of which it is known who belongs together.

How large the sets are that a network learns from, and when: small and few clusters first, then up to the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Episode:
    """A batch of b sets of n items each.

    Attributes:
        x: the items, shape (b, n, ...).
        same: whether two items belong together, boolean, shape (b, n, n), symmetric.
        known: of which pairs that is known, boolean, shape (b, n, n); None: of all.
        k: the number of clusters of each set, shape (b,); 0 where it is unknown.
        labels: the cluster of each item, shape (b, n), or None where only pairs are known.
    """

    x: Tensor
    same: Tensor
    known: Tensor | None
    k: Tensor
    labels: Tensor | None = None

    @classmethod
    def of_labels(cls, x: Tensor, labels: Tensor) -> Episode:
        """The episode of items with known clusters, counted from 0 without gaps in each set. Costs O(b n^2)."""
        same = labels.unsqueeze(-1) == labels.unsqueeze(-2)  # (b, n, n)
        return cls(x, same, None, labels.amax(1) + 1, labels)  # nothing here makes a GPU wait

    def clusters(self) -> Tensor:
        """What an answer is measured against, shape (b, n): the labels, or who is known to belong together.

        Where only pairs are known, two items of which nothing is said count as apart.
        """
        return self.same.int().argmax(-1) if self.labels is None else self.labels

    def to(self, device: torch.device) -> Episode:
        """The same on another device."""
        moved = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


class EpisodeSampler(Protocol):
    """Where episodes come from.

    Attributes:
        k_max: the most clusters of a set.
        shape: the shape of one item.
    """

    k_max: int
    shape: tuple[int, ...]

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n items on the device of the generator, of at most k_max clusters if fewer are asked."""

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """phi: the probability that two items of a set drawn with the same arguments belong together."""

    def config(self) -> dict[str, Any]:
        """What it draws from, in terms of JSON: a run goes on only with a sampler that says the same."""


def shuffled(episode: Episode, generator: torch.Generator) -> Episode:
    """The episode with the items of every set in random order, so that order tells nothing."""
    b, n = episode.x.shape[:2]
    order = torch.rand(b, n, generator=generator, device=generator.device).argsort(dim=1)  # (b, n)
    rows = torch.arange(b, device=order.device).unsqueeze(-1)
    across = (rows.unsqueeze(-1), order.unsqueeze(-1), order.unsqueeze(-2))
    return replace(
        episode,
        x=episode.x[rows, order],
        same=episode.same[across],
        known=None if episode.known is None else episode.known[across],
        labels=None if episode.labels is None else episode.labels[rows, order],
    )


@dataclass(frozen=True)
class BatchSpec:
    """One batch to be drawn: `sets` sets of n items and at most k_max clusters, from a seed."""

    seed: int
    sets: int
    n: int
    k_max: int


@dataclass(frozen=True)
class Curriculum:
    """Sizes of sets over a run.

    A fraction of the batches is always of the base size. The others have n between `min_size` and a limit that grows
    from the base size to `max_size`, uniform in its logarithm, and k up to a limit that grows in the same way. Larger
    sets come fewer at a time, so that a step takes about as long.
    """

    base_size: int = 72  # n of the base size
    base_clusters: int = 5  # the most clusters there
    base_fraction: float = 0.3
    min_size: int = 16
    max_size: int = 1000
    sets: int = 512  # of the base size
    growth: tuple[float, float] = (0.05, 0.4)  # parts of the run between which the limits grow
    min_cluster_size: int = 8  # items of a cluster: k is at most n / min_cluster_size

    def __post_init__(self) -> None:
        if not 2 <= self.min_size <= self.base_size <= self.max_size:
            raise ValueError(
                f"min_size, base_size, max_size are {self.min_size}, {self.base_size}, {self.max_size}; expected "
                "2 <= min_size <= base_size <= max_size"
            )
        if not 0 <= self.base_fraction <= 1 or self.sets < 1:
            raise ValueError(
                f"base_fraction is {self.base_fraction}, sets {self.sets}; expected a fraction and 1 or more"
            )

    def draw(
        self, progress: float, k_max: int, rng: np.random.Generator, *, k_min: int = 1, min_cluster_size: int = 1
    ) -> BatchSpec:
        """The batch at a point of the run, from 0 to 1.

        Args:
            progress: the point of the run.
            k_max: the most clusters that the sampler draws.
            rng: the source of randomness.
            k_min: the fewest that it draws.
            min_cluster_size: items that it gives each cluster at least. Sets too small for k_min such clusters are made
                larger, up to the base size, which must hold them.
        """
        self.check(k_min, min_cluster_size)
        seed = int(rng.integers(2**62))
        begin, end = self.growth
        grown = min(1.0, max(0.0, (progress - begin) / max(end - begin, 1e-9)))
        if rng.random() < self.base_fraction or self.min_size == self.max_size:
            n, k = self.base_size, self.base_clusters
        else:
            limit = self.base_size * (self.max_size / self.base_size) ** grown
            n = round(math.exp(rng.uniform(math.log(self.min_size), math.log(max(limit, self.min_size)))))
            k = round(self.base_clusters * (max(k_max, self.base_clusters) / self.base_clusters) ** grown)
        cluster_size = max(self.min_cluster_size, min_cluster_size)
        n = max(n, min(self.base_size, k_min * cluster_size))
        k = max(k_min, min(k, k_max, n // cluster_size))
        return BatchSpec(seed, self.sets_of(n), n, k)

    def validation_clusters(self, k_max: int, *, k_min: int = 1, min_cluster_size: int = 1) -> int:
        """The most clusters of sets of the base size to validate with; for the arguments see `draw`."""
        self.check(k_min, min_cluster_size)
        return max(k_min, min(self.base_clusters, k_max, self.base_size // min_cluster_size))

    def check(self, k_min: int, min_cluster_size: int) -> None:
        """Raises a ValueError if a sampler's fewest clusters do not fit into a set of the base size."""
        if self.base_size < k_min * min_cluster_size:
            raise ValueError(
                f"base_size is {self.base_size}; expected {k_min * min_cluster_size} or more for {k_min} clusters of "
                f"{min_cluster_size} items from the sampler"
            )

    def for_clusters(self, k_max: int) -> Curriculum:
        """The same for sets of one size, of up to k_max clusters: larger if they would be crowded."""
        if k_max <= self.base_clusters:
            return self
        n = max(self.base_size, self.min_cluster_size * k_max)
        return replace(self, base_size=n, min_size=n, max_size=n, base_clusters=k_max)

    def sets_of(self, n: int) -> int:
        """How many sets of n items a batch holds: a set costs n^2, and a step should always take about as long."""
        fraction = float(min(1.0, (self.base_size / n) ** 1.75))
        return max(2, round(self.sets * fraction))


THESIS_POINTS_CURRICULUM = Curriculum(
    base_size=72, base_clusters=5, base_fraction=1.0, min_size=72, max_size=72, sets=200
)  # the appendix, 2D points
THESIS_ITEMS_CURRICULUM = Curriculum(
    base_size=20, base_clusters=5, base_fraction=1.0, min_size=20, max_size=20, sets=25, min_cluster_size=4
)  # images and speakers
