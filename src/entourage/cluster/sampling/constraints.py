"""Episodes from pairwise constraints alone, who belongs together and who does not: all that the loss needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from entourage.cluster.sampling.episodes import Episode, shuffled
from entourage.cluster.sampling.labelled import View, as_items, moved, unchanged
from entourage.io.fingerprint import digest, name_of

SHARE_DRAWS = 400


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
        view: what the network sees of the items.

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
        view: View = unchanged,
    ) -> None:
        items = as_items(items)
        must, cannot = (_pairs(name, p, len(items)) for name, p in (("must", must_link), ("cannot", cannot_link)))
        if not len(must) and not len(cannot):
            raise ValueError("there is neither a must-link nor a cannot-link; expected some")
        if k_max < 1:
            raise ValueError(f"k_max is {k_max}; expected 1 or more")
        self._must, self._cannot = must, cannot
        graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(len(items),) * 2)
        _, part = connected_components(graph, directed=False)
        torn = part[cannot[:, 0]] == part[cannot[:, 1]]
        if torn.any():
            i, j = cannot[int(torn.argmax())]
            raise ValueError(f"items {i} and {j} cannot belong together, but a chain of must-links says they do")
        mentioned = np.unique(part[np.concatenate([must.ravel(), cannot.ravel()])])
        self._parts = {int(p): np.flatnonzero(part == p) for p in mentioned}
        self._strangers: dict[int, set[int]] = {int(p): set() for p in mentioned}
        for i, j in part[cannot]:
            self._strangers[int(i)].add(int(j))
            self._strangers[int(j)].add(int(i))
        self.k_max, self.view, self._items = k_max, view, items
        self._digest = digest(items)  # as they were given: a device may know fewer digits
        self.shape = tuple(view(items[:1], torch.Generator().manual_seed(0)).shape[1:])
        self._shares: dict[tuple[int, int], float] = {}

    def draw(self, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        """Draws `sets` sets of n items on the device of the generator; items repeat where a part has too few."""
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        rng = np.random.default_rng(seed)
        drawn = [self._draw_one(n, min(k_max or self.k_max, self.k_max), rng) for _ in range(sets)]
        chosen, same, known, k = (
            torch.from_numpy(np.stack([one[i] for one in drawn])).to(generator.device) for i in range(4)
        )
        if self._items.device != generator.device:
            self._items = moved(self._items, generator.device)
        seen = self.view(self._items[chosen.flatten()], generator)
        return shuffled(Episode(seen.reshape(sets, n, *self.shape), same, known, k), generator)

    def same_share(self, n: int, k_max: int | None = None) -> float:
        """phi among pairs of which it is known, from draws with a fixed seed: who is drawn with whom has no formula."""
        key = (n, min(k_max or self.k_max, self.k_max))
        if key not in self._shares:
            rng = np.random.default_rng(0)
            together = total = 0
            for _ in range(SHARE_DRAWS):
                _, same, known, _ = self._draw_one(*key, rng)
                total += int(known.sum()) - n
                together += int((same & known).sum()) - n
            self._shares[key] = together / max(total, 1)
        return self._shares[key]

    def describe(self) -> dict[str, Any]:
        """Digests of the items and of the pairs, and all settings."""
        return {
            "items": self._digest,
            "pairs": digest(torch.from_numpy(self._must), torch.from_numpy(self._cannot)),
            "k": [1, self.k_max],
            "view": name_of(self.view),
        }

    def _draw_one(self, n: int, most: int, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Items (n,), who is the same and of whom it is known (n, n), and the number of clusters, 0 if unknown."""
        if n < 2:
            raise ValueError(f"n is {n}; expected 2 or more items a set")
        parts = self._draw_parts(int(rng.integers(1, min(most, n) + 1)), rng)
        role = np.concatenate([np.arange(len(parts)), rng.integers(0, len(parts), n - len(parts))])
        chosen = np.empty(n, dtype=np.int64)
        for place, name in enumerate(parts):
            rows = np.flatnonzero(role == place)
            members = rng.permutation(self._parts[name])
            chosen[rows] = np.resize(members, len(rows))
        apart = np.array([[a == b or b in self._strangers[a] for b in parts] for a in parts])
        known = apart[role][:, role]
        return chosen, role[:, None] == role[None], known, np.array(len(parts) if apart.all() else 0)

    def _draw_parts(self, k: int, rng: np.random.Generator) -> list[int]:
        names = list(self._parts)
        parts = [names[int(rng.integers(len(names)))]]
        while len(parts) < k:
            # First those that no chosen part can share a cluster with; then those that one of them cannot.
            common = set.intersection(*(self._strangers[p] for p in parts)) - set(parts)
            near = common or set.union(*(self._strangers[p] for p in parts)) - set(parts)
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
    alone = rows[:, 0] == rows[:, 1]
    if alone.any():
        raise ValueError(f"a {name}-link joins item {rows[alone][0, 0]} with itself; expected two items")
    return rows
