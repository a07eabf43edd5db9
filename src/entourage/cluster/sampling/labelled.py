"""Episodes from any labelled data: classes are drawn, then items of them; unseen classes are clustered later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from entourage.cluster.sampling.episodes import Episode, shuffled
from entourage.io.fingerprint import Ragged, digest, name_of

View = Callable[[Tensor, torch.Generator], Tensor]
"""From items as they are kept, shape (m, ...), to what the network sees of them, shape (m, *shape), at random."""


Disguise = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""A change of each cluster as a whole: items (b, n, *shape) and their clusters (b, n) to items of the same shape.

Networks that cluster need many classes more than many items; a class in disguise is a class nobody has seen.
"""


def unchanged(items: Tensor, generator: torch.Generator) -> Tensor:
    """The view that shows items as they are; doubles keep their digits until the network has centred them."""
    return items if items.dtype == torch.float64 else items.float()


def as_items(items: ArrayLike | Tensor) -> Tensor:
    """Items as a tensor of shape (m, ...); a ValueError if they are no finite real numbers."""
    given = items if isinstance(items, Tensor) else np.asarray(items)
    if given.is_complex() if isinstance(given, Tensor) else given.dtype.kind not in "fiub":
        raise ValueError(f"items are of type {given.dtype}; expected real numbers")
    if given.ndim < 2:
        raise ValueError(f"items have shape {tuple(given.shape)}; expected (items, columns) or more dimensions")
    found = given if isinstance(given, Tensor) else torch.from_numpy(np.ascontiguousarray(given))
    finite = found.isfinite().flatten(1).all(1) if found.is_floating_point() else torch.ones(1, dtype=torch.bool)
    if not bool(finite.all()):
        raise ValueError(f"item {int((~finite).nonzero()[0])} has a value that is not finite; expected finite numbers")
    return found


def moved(items: Tensor, device: torch.device) -> Tensor:
    """Items on a device, in single precision if it knows no double."""
    return items.to(device, torch.float32 if device.type == "mps" and items.dtype == torch.float64 else items.dtype)


class LabelledSampler:
    """Draws k uniform, then k classes, then n items of them, `least` of each class and the others by chance.

    Items of a class do not repeat within a set while there are enough.

    Args:
        items: an array or a tensor, shape (m, ...), kept as they are and moved to the device of the first generator.
        labels: the class of each item, shape (m,), of any type.
        k_max: the most clusters of a set.
        k_min: the fewest.
        least: items of a cluster.
        view: what the network sees of the items, e.g. with augmentations.
        disguise: turns classes into new ones, or None.

    Attributes:
        shape: of what the network sees of one item.
    """

    def __init__(
        self,
        items: ArrayLike | Tensor,
        labels: ArrayLike,
        k_max: int = 5,
        *,
        k_min: int = 1,
        least: int = 2,
        view: View = unchanged,
        disguise: Disguise | None = None,
    ) -> None:
        items = as_items(items)
        classes, codes = np.unique(np.asarray(labels), return_inverse=True)
        if len(codes) != len(items):
            raise ValueError(f"{len(codes)} labels for {len(items)} items; expected as many")
        if not 1 <= k_min <= k_max <= len(classes):
            raise ValueError(
                f"k is {k_min} to {k_max} of {len(classes)} classes; expected 1 <= k_min <= k_max <= classes"
            )
        if least < 1:
            raise ValueError(f"least is {least}; expected 1 or more items a cluster")
        self.k_max, self.k_min, self.least, self.view, self.disguise = k_max, k_min, least, view, disguise
        self._items = items
        self._digest = digest(items)  # as they were given: a device may know fewer digits
        self._sizes = torch.from_numpy(np.bincount(codes))  # (c,)
        self._largest = int(self._sizes.max())
        self._members = torch.from_numpy(np.argsort(codes, kind="stable"))  # (m,), class after class
        self._starts = self._sizes.cumsum(0) - self._sizes  # (c,), where each class begins
        self.shape = tuple(view(items[:1], torch.Generator().manual_seed(0)).shape[1:])

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n items on the device of the generator. Costs O(sets k_max largest class)."""
        self._move(generator.device)
        most = self._most(n, k_max)
        k = torch.randint(self.k_min, most + 1, (sets,), generator=generator, device=generator.device)
        lots = torch.rand(sets, len(self._sizes), generator=generator, device=generator.device)
        classes = lots.topk(most, dim=1).indices  # (b, most)
        labels = draw_labels(k, n, self.least, generator)  # (b, n), sorted by cluster
        chosen = self._pick(classes, labels, generator)  # (b, n)
        seen = self.view(self._items[chosen.flatten()], generator).reshape(sets, n, *self.shape)
        if self.disguise is not None:
            seen = self.disguise(seen, labels, generator)
        return shuffled(Episode.of_labels(seen, labels), generator)

    def same_share(self, n: int, k_max: int | None = None) -> float:
        """phi, exactly: the sizes of clusters are `least` and a binomial share of the others."""
        counts = range(self.k_min, self._most(n, k_max) + 1)
        return sum(expected_pairs(k, n, self.least) for k in counts) / len(counts) / (n * (n - 1))

    def describe(self) -> dict[str, Any]:
        """Digests of the items and of who is in which class, and all settings."""
        return {
            "items": self._digest,
            "classes": digest(Ragged(self._members, self._sizes), self._sizes),
            "k": [self.k_min, self.k_max],
            "least": self.least,
            "view": name_of(self.view),
            "disguise": name_of(self.disguise),
        }

    def _most(self, n: int, k_max: int | None) -> int:
        most = self.k_max if k_max is None else k_max
        if not self.k_min <= most <= self.k_max:
            raise ValueError(f"k_max is {k_max}; this sampler draws {self.k_min} to {self.k_max} clusters")
        if n < max(2, self.least * most):
            raise ValueError(f"n is {n}; expected {max(2, self.least * most)} or more for {most} clusters")
        return most

    def _pick(self, classes: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Items for each place of each set, shape (b, n), without repetition while a class has enough."""
        sizes = self._sizes[classes]  # (b, most)
        lots = torch.rand(*classes.shape, self._largest, generator=generator, device=classes.device)
        there = torch.arange(self._largest, device=classes.device) < sizes.unsqueeze(-1)
        order = lots.masked_fill(~there, 2).argsort(-1)  # (b, most, largest class), members first, at random
        clusters = torch.arange(classes.shape[1], device=classes.device)
        starts = (labels.unsqueeze(1) < clusters.unsqueeze(-1)).sum(-1)  # (b, most), where each cluster begins
        within = torch.arange(labels.shape[1], device=labels.device) - starts.gather(1, labels)  # (b, n)
        place = within % sizes.gather(1, labels)
        rows = torch.arange(len(labels), device=labels.device).unsqueeze(-1)
        return self._members[self._starts[classes.gather(1, labels)] + order[rows, labels, place]]

    def _move(self, device: torch.device) -> None:
        if self._items.device != device:
            self._items = moved(self._items, device)
            self._members, self._starts = self._members.to(device), self._starts.to(device)
            self._sizes = self._sizes.to(device)


def draw_labels(k: Tensor, n: int, least: int, generator: torch.Generator) -> Tensor:
    """Clusters of n items a set: `least` of each of k, the others by chance; sorted, shape (b, n)."""
    position = torch.arange(n, device=k.device).expand(len(k), n)
    lots = torch.rand(len(k), n, generator=generator, device=k.device) * k.unsqueeze(-1)
    free = torch.minimum(lots.long(), (k - 1).unsqueeze(-1))
    return torch.where(position < least * k.unsqueeze(-1), position // least, free).sort(-1).values


def expected_pairs(k: int, n: int, least: int) -> float:
    """The expected number of ordered pairs of one cluster: k E[s (s - 1)] with s = least + Bin(n - least k, 1 / k)."""
    free = n - least * k
    mean = least + free / k
    return k * (free * (1 / k) * (1 - 1 / k) + mean**2 - mean)
