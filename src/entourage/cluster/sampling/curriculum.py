"""How large the sets are that a network learns from, and when: small and few clusters first, then up to the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np


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
