"""The graph transduction game for interactive labelling: labels and classes change one by one on the same graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from entourage.game.dynamics import bias_to_labels, diffuse_twice, replicator
from entourage.game.graph import to_torch
from entourage.label.base import has_unique_maximum
from entourage.label.targets import Floats
from entourage.label.transduction import PRESETS, order_by_support, random_walk_step


@dataclass(frozen=True)
class Labelling:
    """Labels and confidences of all items after a game.

    Attributes:
        codes: class of each item, shape (n,); -1 where it is undecided.
        confidence: as `GraphTransduction.confidence_`, shape (n,), float32; 0 where there is no label.
        n_iter: number of iterations.
    """

    codes: NDArray[np.int64]
    confidence: NDArray[np.float32]
    n_iter: int


class IncrementalTransduction:
    """Graph transduction game whose labels change one by one (thesis, chapter 3).

    Returns the labels of `GraphTransduction` for the same graph, in a fraction of the time. The graph, its components
    and the random walks of the warm start are stored. The walks are linear in the labels, so that a new label costs one
    walk of a single vector, and the dynamics continues from there. It does not continue from its last result, whose
    distributions are nearly one-hot: replicator dynamics could hardly change them, so that a wrongly labelled region
    would stay wrong.

    Args:
        w: similarities, shape (n, n), CSR, as `GraphTransduction.graph_`.
        n_classes: initial number of classes, m.
        walk_steps: see `GraphTransduction`.
        max_iter: see `GraphTransduction`.
        tol: see `GraphTransduction`.

    Attributes:
        given: class of each labelled item, shape (n,); -1 where unlabelled.
    """

    def __init__(
        self,
        w: sparse.csr_matrix,
        n_classes: int = 0,
        *,
        walk_steps: int = PRESETS["default"]["walk_steps"],
        max_iter: int = PRESETS["default"]["max_iter"],
        tol: float | None = PRESETS["default"]["tol"],
    ) -> None:
        n = w.shape[0]
        self.graph, self.walk_steps, self.max_iter, self.tol = w, walk_steps, max_iter, tol
        self.given = np.full(n, -1, dtype=np.int64)
        self._w = to_torch(w)
        self._component = connected_components(w, directed=True, connection="strong")[1]
        # Labels diffused by short walks, for the warm start, and by long ones, for the confidences.
        self._reached, self._support = (torch.zeros((n, n_classes), dtype=self._w.dtype) for _ in range(2))

    @property
    def n_classes(self) -> int:
        """Number of classes, m, including those without labels."""
        return self._reached.shape[1]

    def add_class(self) -> int:
        """Add a class without labels and return its code."""
        column = torch.zeros((len(self.given), 1), dtype=self._w.dtype)
        self._reached = torch.cat([self._reached, column], dim=1)
        self._support = torch.cat([self._support, column], dim=1)
        return self.n_classes - 1

    def set_labels(self, items: NDArray[np.int64] | list[int], code: int) -> None:
        """Label items, or remove their labels.

        Args:
            items: distinct indices of items.
            code: class of all these items; -1 removes their labels.

        Raises:
            ValueError: an index or the class does not exist.
        """
        rows = np.asarray(items, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self.given)):
            raise ValueError(f"items: has an index outside of 0 to {len(self.given) - 1}; expected existing items")
        if not -1 <= code < self.n_classes:
            raise ValueError(f"code is {code}; expected a class from 0 to {self.n_classes - 1}, or -1")
        rows = rows[self.given[rows] != code]
        emptied = np.unique(self.given[rows])
        self.given[rows] = code
        for old in emptied[emptied >= 0]:  # subtracting the walks would leave rounding errors
            self._reached[:, old], self._support[:, old] = self._walk(np.flatnonzero(self.given == old))
        if code >= 0:
            short, long = self._walk(rows)
            self._reached[:, code] += short
            self._support[:, code] += long

    def merge_classes(self, source: int, target: int) -> None:
        """Give all labels of one class to another; the source remains, as a class without labels.

        Args:
            source: code of the class to empty.
            target: code of the class that receives its labels.

        Raises:
            ValueError: a class does not exist.
        """
        self.set_labels(np.flatnonzero(self.given == source), target)

    def play(self) -> Labelling:
        """Play the game from the stored walks.

        Returns:
            Labels and confidences. Costs O(nnz m) per iteration, and two products with the graph for the confidences.
        """
        counts = np.bincount(self.given[self.given >= 0], minlength=self.n_classes)
        seen = np.flatnonzero(counts)  # `GraphTransduction` has no columns of classes without labels
        if not len(seen):
            return Labelling(np.full_like(self.given, -1), np.zeros(len(self.given), dtype=np.float32), 0)
        reachable = self._reachable()
        fixed = torch.from_numpy((self.given >= 0) | ~reachable)
        result = replicator(self._w, self._start(counts, seen), fixed=fixed, max_iter=self.max_iter, tol=self.tol)
        x: Floats = result.x.numpy()  # (n, len(seen))
        decided = (self.given >= 0) | (reachable & has_unique_maximum(x))
        best = x.argmax(axis=1)
        votes = np.where(reachable[:, None], random_walk_step(self.graph, x), 0)
        confidence = random_walk_step(self.graph, votes)[np.arange(len(best)), best].clip(0, 1)
        if self.walk_steps:
            confidence = order_by_support(self.graph, confidence, self._support[:, seen].numpy(), best, self.given)
        return Labelling(
            np.where(decided, seen[best], -1), np.where(decided, confidence, 0).astype(np.float32), result.n_iter
        )

    def _walk(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums of the short and of the long walks from some items, each of shape (n,)."""
        indicator = torch.zeros((len(self.given), 1), dtype=self._w.dtype)
        indicator[rows] = 1
        short, long = diffuse_twice(self._w, indicator, self.walk_steps) if len(rows) else (indicator, indicator)
        return short[:, 0], long[:, 0]

    def _reachable(self) -> NDArray[np.bool_]:
        has_label = np.zeros(self._component.max() + 1, dtype=bool)
        has_label[self._component[self.given >= 0]] = True
        return np.asarray(has_label[self._component])

    def _start(self, counts: NDArray[np.int64], seen: NDArray[np.int64]) -> torch.Tensor:
        """Return the initial distributions, shape (n, len(seen)): one-hot where labelled, else biased by the walks."""
        x = torch.full((len(self.given), len(seen)), 1 / len(seen), dtype=self._w.dtype)
        if self.walk_steps:
            x = bias_to_labels(x, self._reached[:, seen], torch.from_numpy(counts[seen]).to(x))
        labelled = np.flatnonzero(self.given >= 0)
        x[labelled] = 0
        x[labelled, np.searchsorted(seen, self.given[labelled])] = 1
        return x
