"""Episodes, the training sets with known clusters; the sampler interface; and the curriculum of set sizes.

The curriculum starts with small sets of few clusters, and increases both limits during training.
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
        x: items, shape (b, n, ...).
        same: whether two items belong to the same cluster, boolean, shape (b, n, n), symmetric.
        known: mask of the pairs for which `same` is known, shape (b, n, n); None for all pairs.
        k: number of clusters of each set, shape (b,); 0 if unknown.
        labels: cluster of each item, shape (b, n); None if only pairs are known.
    """

    x: Tensor
    same: Tensor
    known: Tensor | None
    k: Tensor
    labels: Tensor | None = None

    @classmethod
    def of_labels(cls, x: Tensor, labels: Tensor) -> Episode:
        """Return the episode of items whose clusters are numbered from 0 without gaps in each set. Costs O(b n^2)."""
        same = labels.unsqueeze(-1) == labels.unsqueeze(-2)  # (b, n, n)
        return cls(x, same, None, labels.amax(1) + 1, labels)  # without synchronisation of a GPU

    def clusters(self) -> Tensor:
        """Return the true clusters, shape (b, n): the labels, or else the groups of pairs known to belong together.

        If only pairs are known, items of an unknown pair count as different clusters.
        """
        return self.same.int().argmax(-1) if self.labels is None else self.labels

    def to(self, device: torch.device) -> Episode:
        """Move all tensors to a device."""
        moved = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


class EpisodeSampler(Protocol):
    """Interface of the sources of episodes.

    Attributes:
        k_max: maximum number of clusters in a set.
        shape: shape of one item.
    """

    k_max: int
    shape: tuple[int, ...]

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draw `sets` sets of n items and up to k_max clusters (None: the sampler's) on the generator's device."""

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """Return phi, the probability that two items of a set drawn with these arguments share a cluster."""

    def config(self) -> dict[str, Any]:
        """Return data and settings as JSON values; a run is resumed only with an equal configuration."""


def shuffled(episode: Episode, generator: torch.Generator) -> Episode:
    """Return the episode with the items of each set in random order, so that order contains no information."""
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
    """Specification of a batch: `sets` sets of n items and up to k_max clusters, drawn from a seed."""

    seed: int
    sets: int
    n: int
    k_max: int


@dataclass(frozen=True)
class Curriculum:
    """Schedule of set sizes and numbers of clusters during training.

    A fraction of the batches always has the base size. In the others, n is log-uniform between `min_size` and a limit
    that increases from the base size to `max_size`, and the limit of k increases from `base_clusters` to the sampler's
    k_max. Batches of larger sets contain fewer sets, so that all steps take about the same time.

    Attributes:
        base_size: items of a set of the base size.
        base_clusters: maximum number of clusters in a set of the base size.
        base_fraction: fraction of the batches with the base size.
        min_size: minimum number of items in a set.
        max_size: maximum number of items in a set.
        sets: sets per batch, for the base size.
        growth: interval of the training, from 0 to 1, in which the limits increase.
        min_cluster_size: limits k to n / min_cluster_size.
    """

    base_size: int = 72
    base_clusters: int = 5
    base_fraction: float = 0.3
    min_size: int = 16
    max_size: int = 1000
    sets: int = 512
    growth: tuple[float, float] = (0.05, 0.4)
    min_cluster_size: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.min_size <= self.base_size <= self.max_size:
            raise ValueError(
                f"min_size, base_size, max_size are {self.min_size}, {self.base_size}, {self.max_size}; expected "
                "2 <= min_size <= base_size <= max_size"
            )
        if not 0 <= self.base_fraction <= 1 or self.sets < 1:
            raise ValueError(
                f"base_fraction, sets are {self.base_fraction}, {self.sets}; expected a fraction, and 1 or more sets"
            )

    def draw(
        self, progress: float, k_max: int, rng: np.random.Generator, *, k_min: int = 1, min_cluster_size: int = 1
    ) -> BatchSpec:
        """Draw the specification of a batch.

        Args:
            progress: progress of the training, from 0 to 1.
            k_max: maximum number of clusters of the sampler.
            rng: random generator.
            k_min: minimum number of clusters of the sampler.
            min_cluster_size: minimum cluster size of the sampler. Sets that are too small for k_min such clusters are
                enlarged, up to the base size, which must be sufficient.

        Returns:
            Seed, number of sets, n and k_max of the batch.
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
        """Return the maximum number of clusters in validation sets of the base size; arguments as in `draw`."""
        self.check(k_min, min_cluster_size)
        return max(k_min, min(self.base_clusters, k_max, self.base_size // min_cluster_size))

    def check(self, k_min: int, min_cluster_size: int) -> None:
        """Raise ValueError if a set of the base size is too small for the sampler's minimum number of clusters."""
        if self.base_size < k_min * min_cluster_size:
            raise ValueError(
                f"base_size is {self.base_size}; expected {k_min * min_cluster_size} or more for {k_min} clusters of "
                f"{min_cluster_size} items from the sampler"
            )

    def for_clusters(self, k_max: int) -> Curriculum:
        """Return a curriculum of one set size for k_max clusters, enlarged to `min_cluster_size` items per cluster."""
        if k_max <= self.base_clusters:
            return self
        n = max(self.base_size, self.min_cluster_size * k_max)
        return replace(self, base_size=n, min_size=n, max_size=n, base_clusters=k_max)

    def sets_of(self, n: int) -> int:
        """Return the number of sets of n items in a batch, so that all steps take about the same time."""
        fraction = float(min(1.0, (self.base_size / n) ** 1.75))
        return max(2, round(self.sets * fraction))


# Sets of 2D points in the appendix
THESIS_POINTS_CURRICULUM = Curriculum(
    base_size=72, base_clusters=5, base_fraction=1.0, min_size=72, max_size=72, sets=200
)
# Sets of images and speakers in the appendix
THESIS_ITEMS_CURRICULUM = Curriculum(
    base_size=20, base_clusters=5, base_fraction=1.0, min_size=20, max_size=20, sets=25, min_cluster_size=4
)
