"""Samplers of episodes from labelled items, and from pairwise constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from entourage.cluster.sampling.episodes import Episode, shuffled
from entourage.io.fingerprint import digest, transform_config

ItemAugmentation = Callable[[Tensor, torch.Generator], Tensor]
"""Random transform from stored items, shape (m, ...), to inputs of the network, shape (m, *shape)."""


ClassAugmentation = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Random transform of entire clusters: items (b, n, *shape) and their clusters (b, n) to items of the same shape.

It creates new classes, of which a clustering network needs many.
"""


def unaugmented(items: Tensor, generator: torch.Generator) -> Tensor:
    """Return items without augmentation, as floats; doubles are converted after the network has centred them."""
    return items if items.dtype == torch.float64 else items.float()


def to_item_tensor(items: ArrayLike | Tensor) -> Tensor:
    """Convert items to a tensor, shape (m, ...); raise ValueError unless they are finite real numbers."""
    array = items if isinstance(items, Tensor) else np.asarray(items)
    if array.is_complex() if isinstance(array, Tensor) else array.dtype.kind not in "fiub":
        raise ValueError(f"items are of type {array.dtype}; expected real numbers")
    if array.ndim < 2:
        raise ValueError(f"items have shape {tuple(array.shape)}; expected (items, columns) or more dimensions")
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.ascontiguousarray(array))
    finite = tensor.isfinite().flatten(1).all(1) if tensor.is_floating_point() else torch.ones(1, dtype=torch.bool)
    if not bool(finite.all()):
        raise ValueError(
            f"items[{int((~finite).nonzero()[0])}] has a value that is not finite; expected finite numbers"
        )
    return tensor


def move_items(items: Tensor, device: torch.device) -> Tensor:
    """Move items to a device, in single precision if it does not support double precision."""
    return items.to(device, torch.float32 if device.type == "mps" and items.dtype == torch.float64 else items.dtype)


class LabelledSampler:
    """Sampler of episodes from labelled items.

    Draws k uniformly, then k classes, then n of their items: `min_cluster_size` of each class, the others at random.
    Items are repeated within a set only if their class is too small.

    Args:
        items: array or tensor, shape (m, ...); moved to the device of the first generator.
        labels: class of each item, shape (m,), of any type.
        k_max: maximum number of clusters in a set.
        k_min: minimum number of clusters in a set.
        min_cluster_size: minimum number of items of a cluster.
        augmentation: random transform from stored items to inputs of the network.
        class_augmentation: random transform of entire clusters, which creates new classes; None for none.

    Attributes:
        shape: shape of one input of the network.

    Raises:
        ValueError: the arguments are not compatible, or items are not finite numbers.
    """

    def __init__(
        self,
        items: ArrayLike | Tensor,
        labels: ArrayLike,
        k_max: int = 5,
        *,
        k_min: int = 1,
        min_cluster_size: int = 2,
        augmentation: ItemAugmentation = unaugmented,
        class_augmentation: ClassAugmentation | None = None,
    ) -> None:
        items = to_item_tensor(items)
        classes, codes = np.unique(np.asarray(labels), return_inverse=True)
        if len(codes) != len(items):
            raise ValueError(f"labels: {len(codes)} for {len(items)} items; expected one label per item")
        if not 1 <= k_min <= k_max <= len(classes):
            raise ValueError(
                f"k_min, k_max are {k_min}, {k_max}; expected 1 <= k_min <= k_max <= {len(classes)}, the classes"
            )
        if min_cluster_size < 1:
            raise ValueError(f"min_cluster_size is {min_cluster_size}; expected 1 or more")
        self.k_max, self.k_min, self.min_cluster_size = k_max, k_min, min_cluster_size
        self.augmentation, self.class_augmentation = augmentation, class_augmentation
        self._items = items
        self._digest = digest(items)  # before `move_items`, which may convert to single precision
        self._sizes = torch.from_numpy(np.bincount(codes))  # (c,)
        self._largest = int(self._sizes.max())
        self._members = torch.from_numpy(np.argsort(codes, kind="stable"))  # (m,), sorted by class
        self._starts = self._sizes.cumsum(0) - self._sizes  # (c,), first index of each class
        self.shape = tuple(augmentation(items[:1], torch.Generator().manual_seed(0)).shape[1:])

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draw sets of items, see `EpisodeSampler.draw`. Costs O(sets k_max c) for c items of the largest class."""
        self._move(generator.device)
        max_clusters = self._check_k_max(n, k_max)
        k = torch.randint(self.k_min, max_clusters + 1, (sets,), generator=generator, device=generator.device)
        random = torch.rand(sets, len(self._sizes), generator=generator, device=generator.device)
        classes = random.topk(max_clusters, dim=1).indices  # (b, k_max)
        labels = draw_labels(k, n, self.min_cluster_size, generator)  # (b, n), sorted by cluster
        chosen = self._pick(classes, labels, generator)  # (b, n)
        x = self.augmentation(self._items[chosen.flatten()], generator).reshape(sets, n, *self.shape)
        if self.class_augmentation is not None:
            x = self.class_augmentation(x, labels, generator)
        return shuffled(Episode.of_labels(x, labels), generator)

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """Return phi exactly: the size of a cluster is `min_cluster_size` plus a binomial number."""
        counts = range(self.k_min, self._check_k_max(n, k_max) + 1)
        return sum(expected_pairs(k, n, self.min_cluster_size) for k in counts) / len(counts) / (n * (n - 1))

    def config(self) -> dict[str, Any]:
        """Return digests of the items and of their classes, and all settings."""
        return {
            "items": self._digest,
            "classes": digest(self._members, self._sizes),
            "k": [self.k_min, self.k_max],
            "min_cluster_size": self.min_cluster_size,
            "augmentation": transform_config(self.augmentation),
            "class_augmentation": transform_config(self.class_augmentation),
        }

    def _check_k_max(self, n: int, k_max: int | None) -> int:
        max_clusters = self.k_max if k_max is None else k_max
        if not self.k_min <= max_clusters <= self.k_max:
            raise ValueError(f"k_max is {k_max}; expected {self.k_min} to {self.k_max}, as the sampler")
        if n < max(2, self.min_cluster_size * max_clusters):
            raise ValueError(
                f"n is {n}; expected {max(2, self.min_cluster_size * max_clusters)} or more for {max_clusters} clusters"
            )
        return max_clusters

    def _pick(self, classes: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the items of each set, shape (b, n), without repetition if their class is large enough."""
        sizes = self._sizes[classes]  # (b, k_max)
        random = torch.rand(*classes.shape, self._largest, generator=generator, device=classes.device)
        exists = torch.arange(self._largest, device=classes.device) < sizes.unsqueeze(-1)
        order = random.masked_fill(~exists, 2).argsort(-1)  # (b, k_max, largest class), shuffled members first
        clusters = torch.arange(classes.shape[1], device=classes.device)
        starts = (labels.unsqueeze(1) < clusters.unsqueeze(-1)).sum(-1)  # (b, k_max), first index of each cluster
        within = torch.arange(labels.shape[1], device=labels.device) - starts.gather(1, labels)  # (b, n)
        index = within % sizes.gather(1, labels)
        rows = torch.arange(len(labels), device=labels.device).unsqueeze(-1)
        return self._members[self._starts[classes.gather(1, labels)] + order[rows, labels, index]]

    def _move(self, device: torch.device) -> None:
        if self._items.device != device:
            self._items = move_items(self._items, device)
            self._members, self._starts = self._members.to(device), self._starts.to(device)
            self._sizes = self._sizes.to(device)


def draw_labels(k: Tensor, n: int, min_cluster_size: int, generator: torch.Generator) -> Tensor:
    """Draw sorted clusters of n items, shape (b, n): `min_cluster_size` of each of k, the others at random."""
    position = torch.arange(n, device=k.device).expand(len(k), n)
    random = torch.rand(len(k), n, generator=generator, device=k.device) * k.unsqueeze(-1)
    free = torch.minimum(random.long(), (k - 1).unsqueeze(-1))
    return (
        torch.where(position < min_cluster_size * k.unsqueeze(-1), position // min_cluster_size, free).sort(-1).values
    )


def expected_pairs(k: int, n: int, min_cluster_size: int) -> float:
    """Return k E[s (s - 1)], the expected ordered pairs in one cluster, with s = min + Bin(n - min k, 1 / k)."""
    free = n - min_cluster_size * k
    mean = min_cluster_size + free / k
    return k * (free * (1 / k) * (1 - 1 / k) + mean**2 - mean)


PRIOR_DRAWS = 400


class ConstraintSampler:
    """Sampler of episodes from pairwise constraints.

    Items that must-links connect form a component. A set starts with a random component; others are added that have a
    cannot-link to a component of the set, up to `k_max` in all. If two components of a set have no cannot-link, it is
    unknown whether they are one cluster, and the number of clusters is unknown, too; the loss ignores both.

    Args:
        items: array or tensor, shape (m, ...).
        must_link: pairs of indices of items in the same cluster, shape (p, 2).
        cannot_link: pairs of indices of items in different clusters, shape (q, 2).
        k_max: maximum number of clusters in a set.
        augmentation: random transform from stored items to inputs of the network.

    Attributes:
        shape: shape of one input of the network.

    Raises:
        ValueError: pairs are invalid or contradictory, or there are no constraints.
    """

    def __init__(
        self,
        items: ArrayLike | Tensor,
        must_link: ArrayLike,
        cannot_link: ArrayLike,
        k_max: int = 5,
        *,
        augmentation: ItemAugmentation = unaugmented,
    ) -> None:
        items = to_item_tensor(items)
        must, cannot = (_pairs(name, p, len(items)) for name, p in (("must", must_link), ("cannot", cannot_link)))
        if not len(must) and not len(cannot):
            raise ValueError("must_link and cannot_link are empty; expected at least one pair")
        if k_max < 1:
            raise ValueError(f"k_max is {k_max}; expected 1 or more")
        self._must, self._cannot = must, cannot
        graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(len(items),) * 2)
        _, component = connected_components(graph, directed=False)
        contradictory = component[cannot[:, 0]] == component[cannot[:, 1]]
        if contradictory.any():
            i, j = cannot[int(contradictory.argmax())]
            raise ValueError(
                f"cannot_link: items {i} and {j} are joined by must-links; expected items of different components"
            )
        linked = np.unique(component[np.concatenate([must.ravel(), cannot.ravel()])])
        self._components = {int(p): np.flatnonzero(component == p) for p in linked}
        self._separated: dict[int, set[int]] = {int(p): set() for p in linked}
        for i, j in component[cannot]:
            self._separated[int(i)].add(int(j))
            self._separated[int(j)].add(int(i))
        self.k_max, self.augmentation, self._items = k_max, augmentation, items
        self._digest = digest(items)  # before `move_items`, which may convert to single precision
        self.shape = tuple(augmentation(items[:1], torch.Generator().manual_seed(0)).shape[1:])
        self._priors: dict[tuple[int, int], float] = {}

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draw sets of items, see `EpisodeSampler.draw`; items of small components are repeated."""
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        rng = np.random.default_rng(seed)
        sampled = [self._draw_one(n, min(k_max or self.k_max, self.k_max), rng) for _ in range(sets)]
        chosen, same, known, k = (
            torch.from_numpy(np.stack([episode[i] for episode in sampled])).to(generator.device) for i in range(4)
        )
        if self._items.device != generator.device:
            self._items = move_items(self._items, generator.device)
        x = self.augmentation(self._items[chosen.flatten()], generator)
        return shuffled(Episode(x.reshape(sets, n, *self.shape), same, known, k), generator)

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """Return phi among known pairs, estimated from 400 sets with a fixed seed, as it has no closed form."""
        key = (n, min(k_max or self.k_max, self.k_max))
        if key not in self._priors:
            rng = np.random.default_rng(0)
            together = total = 0
            for _ in range(PRIOR_DRAWS):
                _, same, known, _ = self._draw_one(*key, rng)
                total += int(known.sum()) - n
                together += int((same & known).sum()) - n
            self._priors[key] = together / max(total, 1)
        return self._priors[key]

    def config(self) -> dict[str, Any]:
        """Return digests of the items and of the pairs, and all settings."""
        return {
            "items": self._digest,
            "pairs": digest(torch.from_numpy(self._must), torch.from_numpy(self._cannot)),
            "k": [1, self.k_max],
            "augmentation": transform_config(self.augmentation),
        }

    def _draw_one(self, n: int, max_clusters: int, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Draw the items of a set (n,), with `same` and `known` (n, n) and the number of clusters, 0 if unknown."""
        if n < 2:
            raise ValueError(f"n is {n}; expected 2 or more items per set")
        components = self._draw_components(int(rng.integers(1, min(max_clusters, n) + 1)), rng)
        role = np.concatenate([np.arange(len(components)), rng.integers(0, len(components), n - len(components))])
        chosen = np.empty(n, dtype=np.int64)
        for index, name in enumerate(components):
            rows = np.flatnonzero(role == index)
            members = rng.permutation(self._components[name])
            chosen[rows] = np.resize(members, len(rows))
        separated = np.array([[a == b or b in self._separated[a] for b in components] for a in components])
        known = separated[role][:, role]
        return chosen, role[:, None] == role[None], known, np.array(len(components) if separated.all() else 0)

    def _draw_components(self, k: int, rng: np.random.Generator) -> list[int]:
        names = list(self._components)
        components = [names[int(rng.integers(len(names)))]]
        while len(components) < k:
            # Prefer components with a cannot-link to all chosen ones, then those with one to any.
            common = set.intersection(*(self._separated[p] for p in components)) - set(components)
            near = common or set.union(*(self._separated[p] for p in components)) - set(components)
            if not near:
                break
            components.append(sorted(near)[int(rng.integers(len(near)))])
        return components


def _pairs(name: str, pairs: ArrayLike, m: int) -> NDArray[np.int64]:
    """Validate pairs of indices, shape (p, 2)."""
    rows = np.asarray(pairs)
    if not rows.size:
        return np.empty((0, 2), dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"{name}_link has shape {rows.shape} and type {rows.dtype}; expected pairs (p, 2) of integers")
    rows = rows.astype(np.int64)
    if not (rows.min() >= 0 and rows.max() < m):
        raise ValueError(f"{name}_link has item {rows.max() if rows.max() >= m else rows.min()}; expected 0 to {m - 1}")
    reflexive = rows[:, 0] == rows[:, 1]
    if reflexive.any():
        raise ValueError(f"{name}_link has a pair of item {rows[reflexive][0, 0]} with itself; expected two items")
    return rows
