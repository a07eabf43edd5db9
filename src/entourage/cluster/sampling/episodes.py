"""What a network that clusters learns from: sets of items of which it is known who belongs together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

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
