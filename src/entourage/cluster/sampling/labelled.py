"""Episodes from any labelled data: classes are drawn, then items of them; unseen classes are clustered later.

Episodes from pairwise constraints alone, who belongs together and who does not: all that the loss needs.
"""

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
"""From items as they are kept, shape (m, ...), to what the network sees of them, shape (m, *shape), at random."""


ClassAugmentation = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""A change of each cluster as a whole: items (b, n, *shape) and their clusters (b, n) to items of the same shape.

Networks that cluster need many classes more than many items; a class in disguise is a class nobody has seen.
"""


def unaugmented(items: Tensor, generator: torch.Generator) -> Tensor:
    """The view that shows items as they are; doubles keep their digits until the network has centred them."""
    return items if items.dtype == torch.float64 else items.float()


def to_item_tensor(items: ArrayLike | Tensor) -> Tensor:
    """Items as a tensor of shape (m, ...); a ValueError if they are no finite real numbers."""
    array = items if isinstance(items, Tensor) else np.asarray(items)
    if array.is_complex() if isinstance(array, Tensor) else array.dtype.kind not in "fiub":
        raise ValueError(f"items are of type {array.dtype}; expected real numbers")
    if array.ndim < 2:
        raise ValueError(f"items have shape {tuple(array.shape)}; expected (items, columns) or more dimensions")
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.ascontiguousarray(array))
    finite = tensor.isfinite().flatten(1).all(1) if tensor.is_floating_point() else torch.ones(1, dtype=torch.bool)
    if not bool(finite.all()):
        raise ValueError(f"item {int((~finite).nonzero()[0])} has a value that is not finite; expected finite numbers")
    return tensor


def move_items(items: Tensor, device: torch.device) -> Tensor:
    """Items on a device, in single precision if it knows no double."""
    return items.to(device, torch.float32 if device.type == "mps" and items.dtype == torch.float64 else items.dtype)


class LabelledSampler:
    """Draws k uniform, then k classes, then n items of them, `min_cluster_size` of each class and the others by chance.

    Items of a class do not repeat within a set while there are enough.

    Args:
        items: an array or a tensor, shape (m, ...), kept as they are and moved to the device of the first generator.
        labels: the class of each item, shape (m,), of any type.
        k_max: the most clusters of a set.
        k_min: the fewest.
        min_cluster_size: items of a cluster.
        augmentation: from stored items to inputs of the network.
        class_augmentation: turns classes into new ones, or None.

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
        min_cluster_size: int = 2,
        augmentation: ItemAugmentation = unaugmented,
        class_augmentation: ClassAugmentation | None = None,
    ) -> None:
        items = to_item_tensor(items)
        classes, codes = np.unique(np.asarray(labels), return_inverse=True)
        if len(codes) != len(items):
            raise ValueError(f"{len(codes)} labels for {len(items)} items; expected as many")
        if not 1 <= k_min <= k_max <= len(classes):
            raise ValueError(
                f"k is {k_min} to {k_max} of {len(classes)} classes; expected 1 <= k_min <= k_max <= classes"
            )
        if min_cluster_size < 1:
            raise ValueError(f"min_cluster_size is {min_cluster_size}; expected 1 or more")
        self.k_max, self.k_min, self.min_cluster_size, self.augmentation, self.class_augmentation = (
            k_max,
            k_min,
            min_cluster_size,
            augmentation,
            class_augmentation,
        )
        self._items = items
        self._digest = digest(items)  # as they were given: a device may know fewer digits
        self._sizes = torch.from_numpy(np.bincount(codes))  # (c,)
        self._largest = int(self._sizes.max())
        self._members = torch.from_numpy(np.argsort(codes, kind="stable"))  # (m,), class after class
        self._starts = self._sizes.cumsum(0) - self._sizes  # (c,), where each class begins
        self.shape = tuple(augmentation(items[:1], torch.Generator().manual_seed(0)).shape[1:])

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n items on the device of the generator. Costs O(sets k_max largest class)."""
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
        """phi, exactly: the sizes of clusters are `min_cluster_size` and a binomial share of the others."""
        counts = range(self.k_min, self._check_k_max(n, k_max) + 1)
        return sum(expected_pairs(k, n, self.min_cluster_size) for k in counts) / len(counts) / (n * (n - 1))

    def config(self) -> dict[str, Any]:
        """Digests of the items and of who is in which class, and all settings."""
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
            raise ValueError(f"k_max is {k_max}; this sampler draws {self.k_min} to {self.k_max} clusters")
        if n < max(2, self.min_cluster_size * max_clusters):
            raise ValueError(
                f"n is {n}; expected {max(2, self.min_cluster_size * max_clusters)} or more for {max_clusters} clusters"
            )
        return max_clusters

    def _pick(self, classes: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Items for each place of each set, shape (b, n), without repetition while a class has enough."""
        sizes = self._sizes[classes]  # (b, k_max)
        random = torch.rand(*classes.shape, self._largest, generator=generator, device=classes.device)
        exists = torch.arange(self._largest, device=classes.device) < sizes.unsqueeze(-1)
        order = random.masked_fill(~exists, 2).argsort(-1)  # (b, k_max, largest class), members first, at random
        clusters = torch.arange(classes.shape[1], device=classes.device)
        starts = (labels.unsqueeze(1) < clusters.unsqueeze(-1)).sum(-1)  # (b, k_max), where each cluster begins
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
    """Clusters of n items a set: `min_cluster_size` of each of k, the others by chance; sorted, shape (b, n)."""
    position = torch.arange(n, device=k.device).expand(len(k), n)
    random = torch.rand(len(k), n, generator=generator, device=k.device) * k.unsqueeze(-1)
    free = torch.minimum(random.long(), (k - 1).unsqueeze(-1))
    return (
        torch.where(position < min_cluster_size * k.unsqueeze(-1), position // min_cluster_size, free).sort(-1).values
    )


def expected_pairs(k: int, n: int, min_cluster_size: int) -> float:
    """The expected number of ordered pairs of one cluster: k E[s (s - 1)] with s = least + Bin(n - least k, 1 / k)."""
    free = n - min_cluster_size * k
    mean = min_cluster_size + free / k
    return k * (free * (1 / k) * (1 - 1 / k) + mean**2 - mean)


PRIOR_DRAWS = 400


class ConstraintSampler:
    """Draws sets from parts: items that belong together by a chain of must-links.

    A set begins with a random part and goes on with parts that cannot belong to one of those it has, up to k of them.
    Pairs of parts of which nothing is said stay unknown, and so does then the number of clusters; the loss passes over
    both.

    Args:
        items: an array or a tensor, shape (m, ...).
        must_link: pairs of items that belong together, shape (p, 2).
        cannot_link: pairs that do not, shape (q, 2).
        k_max: the most clusters of a set.
        augmentation: from stored items to inputs of the network.

    Raises:
        ValueError: pairs are none of two items; a pair is both, by whatever chain; or there is no constraint at all.
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
            raise ValueError("there is neither a must-link nor a cannot-link; expected some")
        if k_max < 1:
            raise ValueError(f"k_max is {k_max}; expected 1 or more")
        self._must, self._cannot = must, cannot
        graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(len(items),) * 2)
        _, part = connected_components(graph, directed=False)
        contradictory = part[cannot[:, 0]] == part[cannot[:, 1]]
        if contradictory.any():
            i, j = cannot[int(contradictory.argmax())]
            raise ValueError(f"items {i} and {j} cannot belong together, but a chain of must-links says they do")
        linked = np.unique(part[np.concatenate([must.ravel(), cannot.ravel()])])
        self._parts = {int(p): np.flatnonzero(part == p) for p in linked}
        self._separate: dict[int, set[int]] = {int(p): set() for p in linked}
        for i, j in part[cannot]:
            self._separate[int(i)].add(int(j))
            self._separate[int(j)].add(int(i))
        self.k_max, self.augmentation, self._items = k_max, augmentation, items
        self._digest = digest(items)  # as they were given: a device may know fewer digits
        self.shape = tuple(augmentation(items[:1], torch.Generator().manual_seed(0)).shape[1:])
        self._priors: dict[tuple[int, int], float] = {}

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n items on the device of the generator; items repeat where a part has too few."""
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        rng = np.random.default_rng(seed)
        sampled = [self._draw_one(n, min(k_max or self.k_max, self.k_max), rng) for _ in range(sets)]
        chosen, same, known, k = (
            torch.from_numpy(np.stack([one[i] for one in sampled])).to(generator.device) for i in range(4)
        )
        if self._items.device != generator.device:
            self._items = move_items(self._items, generator.device)
        x = self.augmentation(self._items[chosen.flatten()], generator)
        return shuffled(Episode(x.reshape(sets, n, *self.shape), same, known, k), generator)

    def pair_prior(self, n: int, k_max: int | None = None) -> float:
        """phi among pairs of which it is known, from draws with a fixed seed: who is drawn with whom has no formula."""
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
        """Digests of the items and of the pairs, and all settings."""
        return {
            "items": self._digest,
            "pairs": digest(torch.from_numpy(self._must), torch.from_numpy(self._cannot)),
            "k": [1, self.k_max],
            "augmentation": transform_config(self.augmentation),
        }

    def _draw_one(self, n: int, max_clusters: int, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Items (n,), who is the same and of whom it is known (n, n), and the number of clusters, 0 if unknown."""
        if n < 2:
            raise ValueError(f"n is {n}; expected 2 or more items a set")
        parts = self._draw_parts(int(rng.integers(1, min(max_clusters, n) + 1)), rng)
        role = np.concatenate([np.arange(len(parts)), rng.integers(0, len(parts), n - len(parts))])
        chosen = np.empty(n, dtype=np.int64)
        for index, name in enumerate(parts):
            rows = np.flatnonzero(role == index)
            members = rng.permutation(self._parts[name])
            chosen[rows] = np.resize(members, len(rows))
        separated = np.array([[a == b or b in self._separate[a] for b in parts] for a in parts])
        known = separated[role][:, role]
        return chosen, role[:, None] == role[None], known, np.array(len(parts) if separated.all() else 0)

    def _draw_parts(self, k: int, rng: np.random.Generator) -> list[int]:
        names = list(self._parts)
        parts = [names[int(rng.integers(len(names)))]]
        while len(parts) < k:
            # First those that no chosen part can share a cluster with; then those that one of them cannot.
            common = set.intersection(*(self._separate[p] for p in parts)) - set(parts)
            near = common or set.union(*(self._separate[p] for p in parts)) - set(parts)
            if not near:
                break
            parts.append(sorted(near)[int(rng.integers(len(near)))])
        return parts


def _pairs(name: str, pairs: ArrayLike, m: int) -> NDArray[np.int64]:
    """Pairs of positions, shape (p, 2), or an error that says what else they are."""
    rows = np.asarray(pairs)
    if not rows.size:
        return np.empty((0, 2), dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"{name}-links are of shape {rows.shape} and type {rows.dtype}; expected pairs (p, 2) of whole numbers"
        )
    rows = rows.astype(np.int64)
    if not (rows.min() >= 0 and rows.max() < m):
        raise ValueError(f"a {name}-link names item {rows.max() if rows.max() >= m else rows.min()}; there are {m}")
    reflexive = rows[:, 0] == rows[:, 1]
    if reflexive.any():
        raise ValueError(f"a {name}-link joins item {rows[reflexive][0, 0]} with itself; expected two items")
    return rows
