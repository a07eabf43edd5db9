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

    def same_share(self, n: int, k_max: int | None = None) -> float:
        """phi: the probability that two items of a set drawn with the same arguments belong together."""

    def describe(self) -> dict[str, Any]:
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
class Draw:
    """One batch to be drawn: `sets` sets of n items and at most k_max clusters, from a seed."""

    seed: int
    sets: int
    n: int
    k_max: int


@dataclass(frozen=True)
class Curriculum:
    """Sizes of sets over a run.

    A share of the batches is always of the home size. The others have n between `least` and a limit that grows from
    the home size to `most`, uniform in its logarithm, and k up to a limit that grows alike. Larger sets come fewer at
    a time, so that a step takes about as long.
    """

    home: int = 72  # n of the home size
    home_k: int = 5  # the most clusters there
    home_share: float = 0.3
    least: int = 16
    most: int = 1000
    sets: int = 512  # of the home size
    grows: tuple[float, float] = (0.05, 0.4)  # parts of the run between which the limits grow
    crowd: int = 8  # items a cluster, at least: k is at most n / crowd

    def __post_init__(self) -> None:
        if not 2 <= self.least <= self.home <= self.most:
            raise ValueError(f"least, home, most are {self.least}, {self.home}, {self.most}; expected 2 <= rising")
        if not 0 <= self.home_share <= 1 or self.sets < 1:
            raise ValueError(f"home_share is {self.home_share}, sets {self.sets}; expected a share and 1 or more")

    def draw(self, progress: float, k_max: int, rng: np.random.Generator, *, k_min: int = 1, each: int = 1) -> Draw:
        """The batch at a point of the run, from 0 to 1.

        Args:
            progress: the point of the run.
            k_max: the most clusters that the sampler draws.
            rng: the source of randomness.
            k_min: the fewest that it draws.
            each: items that it gives each cluster at least. Sets too small for k_min such clusters are made larger,
                up to the home size, which must hold them.
        """
        self.check(k_min, each)
        seed = int(rng.integers(2**62))
        begin, end = self.grows
        grown = min(1.0, max(0.0, (progress - begin) / max(end - begin, 1e-9)))
        if rng.random() < self.home_share or self.least == self.most:
            n, k = self.home, self.home_k
        else:
            limit = self.home * (self.most / self.home) ** grown
            n = round(math.exp(rng.uniform(math.log(self.least), math.log(max(limit, self.least)))))
            k = round(self.home_k * (max(k_max, self.home_k) / self.home_k) ** grown)
        crowd = max(self.crowd, each)
        n = max(n, min(self.home, k_min * crowd))
        k = max(k_min, min(k, k_max, n // crowd))
        return Draw(seed, self.sets_of(n), n, k)

    def home_clusters(self, k_max: int, *, k_min: int = 1, each: int = 1) -> int:
        """The most clusters of sets of the home size to validate with; for the arguments see `draw`."""
        self.check(k_min, each)
        return max(k_min, min(self.home_k, k_max, self.home // each))

    def check(self, k_min: int, each: int) -> None:
        """Raises a ValueError if a sampler's fewest clusters do not fit into a set of the home size."""
        if self.home < k_min * each:
            needed = f"{k_min} clusters or more of {each} items or more"
            raise ValueError(
                f"the sampler draws {needed}; expected a home size of {k_min * each} items, not {self.home}"
            )

    def for_clusters(self, k_max: int) -> Curriculum:
        """The same for sets of one size, of up to k_max clusters: larger if they would be crowded."""
        if k_max <= self.home_k:
            return self
        n = max(self.home, self.crowd * k_max)
        return replace(self, home=n, least=n, most=n, home_k=k_max)

    def sets_of(self, n: int) -> int:
        """How many sets of n items a batch holds: a set costs n^2, and a step should always take about as long."""
        share = float(min(1.0, (self.home / n) ** 1.75))
        return max(2, round(self.sets * share))


FIXED = Curriculum(home=72, home_k=5, home_share=1.0, least=72, most=72, sets=200)  # the appendix, 2D points
EPISODE = Curriculum(home=20, home_k=5, home_share=1.0, least=20, most=20, sets=25, crowd=4)  # images and speakers
