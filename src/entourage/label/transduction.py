"""The graph transduction game (thesis, chapter 3), in which labels are strategies of the points, and its presets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from entourage.game.dynamics import diffuse_twice, replicator, warm_start
from entourage.game.graph import Affinity, Negatives, Symmetry, to_torch
from entourage.game.metric_search import Metric
from entourage.label.base import GraphLabeller, TransductionProblem
from entourage.label.targets import Floats
from entourage.validation import preset

_DEFAULT: dict[str, Any] = {
    "n_neighbors": "auto",  # floor(log2 n) + 1
    "affinity": "self_tuning",
    "squared": True,  # exp(-d^2 / ...), as Zelnik-Manor and Perona published it
    "symmetrize": "mean",  # better than "max" on CIFAR-10 and Caltech-101 by up to 0.7 points, equal on digits
    "normalize": True,  # D^-1/2 W D^-1/2: worth two points on CIFAR-10 features at every label count
    "walk_steps": 30,  # worth four points on digits with one label a class, two on CIFAR-10 features
    "max_iter": 1000,
    "tol": 1e-4,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": MappingProxyType(_DEFAULT),
    "thesis": MappingProxyType(
        {
            **_DEFAULT,
            "n_neighbors": None,  # the text uses all pairs, without sparsification: O(n^2) memory
            "normalize": False,  # the text does not mention normalisation
            "walk_steps": 0,  # unlabelled points start from a uniform distribution
        }
    ),
    "original": MappingProxyType(
        {
            **_DEFAULT,
            "squared": False,  # the code uses the distance, not its square
            "symmetrize": "max",
            "normalize": False,
            "walk_steps": 0,
            "max_iter": 25,  # the code runs a fixed number of iterations...
            "tol": None,  # ...without a convergence test
        }
    ),
}
"""Keyword arguments of `GraphTransduction` by preset name."""


class GraphTransduction(GraphLabeller):
    """Graph transduction game: label a data set from a few labels by replicator dynamics on a similarity graph.

    Points are players and labels are pure strategies. The distributions of labelled points are fixed. The others start
    from their prior, biased by random walks from the labels, and are updated by replicator dynamics until it converges.
    Costs O(n k) memory and O(n k m) time per iteration.

    The final distributions are close to one-hot, so they are not confidences. `agreement_` is the probability that a
    two-step random walk over the graph ends at points of the same label. `confidence_` has the same values in another
    order, which also depends on the given labels: see `order_by_support`.

    The arguments that are not listed here are those of `GraphLabeller`.

    Args:
        class_similarity: S, shape (m, m), the payoff of each label against each other label (the identity by default):
            the partial payoffs are A_ij = w_ij S.
        class_priors: class frequencies, if they are known: an array of shape (m,), or "empirical" for those of the
            given labels; each iteration then favours classes with too few points. Useful if labels were sampled at
            random, harmful otherwise.
        walk_steps: steps of the random walks by which labels bias the initial distributions (`game.warm_start`); 0
            uses the prior alone, as in the thesis; ignored with `class_similarity`.
        tol: stop when an iteration changes the distributions by less than this fraction of the sum of all changes so
            far; None runs `max_iter` iterations.

    Attributes:
        agreement_: probability that a two-step random walk ends at the same label, shape (n,).
        n_iter_: number of iterations.
        consistency_: F(X) before each iteration and after the last, shape (n_iter_ + 1,).

    Examples:
        >>> import numpy as np
        >>> from entourage.label import GraphTransduction
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> GraphTransduction(n_neighbors=2).fit(X, [0, -1, -1, -1, -1, 1]).transduction_.tolist()
        [0, 0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] | None = "auto",
        affinity: Affinity | Literal["precomputed"] = "self_tuning",
        *,
        squared: bool = True,
        symmetrize: Symmetry = "mean",
        normalize: bool = True,
        negatives: Negatives = "error",
        metric: Metric = "euclidean",
        class_similarity: ArrayLike | None = None,
        class_priors: ArrayLike | Literal["empirical"] | None = None,
        walk_steps: int = 30,
        classes: ArrayLike | None = None,
        max_iter: int = 1000,
        tol: float | None = 1e-4,
        device: str = "auto",
    ) -> None:
        super().__init__(
            n_neighbors,
            affinity,
            squared=squared,
            symmetrize=symmetrize,
            normalize=normalize,
            negatives=negatives,
            metric=metric,
            classes=classes,
            max_iter=max_iter,
            tol=tol,
            device=device,
        )
        self.class_similarity = class_similarity
        self.class_priors = class_priors
        self.walk_steps = walk_steps

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Build the estimator from a preset.

        Args:
            name: "default", "thesis" or "original"; see `PRESETS`.
            **changes: constructor arguments that replace those of the preset.

        Returns:
            The unfitted estimator.

        Raises:
            ValueError: the preset does not exist.
        """
        return cls(**{**preset(PRESETS, name), **changes})

    def _distribute(self, problem: TransductionProblem) -> Floats:
        if self.walk_steps < 0:
            raise ValueError(f"walk_steps is {self.walk_steps}; expected a number of steps, or 0")
        order = None if self._neighbor_graph is None else self._neighbor_graph.order
        if order is None:
            order = np.arange(len(problem.initial))
        else:
            problem = _reordered(problem, order)
        position = np.argsort(order)
        device, labelled = problem.device, torch.from_numpy(problem.targets.labelled).to(problem.device)
        w = to_torch(problem.w, device)
        initial = torch.from_numpy(problem.initial.astype(problem.w.dtype)).to(device)
        steps = self.walk_steps if self.class_similarity is None else 0
        reached, support = diffuse_twice(w, initial * labelled[:, None], steps) if steps else (None, None)
        self._support: Floats | None = None if support is None else support.cpu().numpy()[position]
        result = replicator(
            w,
            warm_start(initial, w, labelled, steps, reached),
            fixed=labelled | ~torch.from_numpy(problem.reached).to(device),
            class_similarity=self._class_similarity(problem.device),
            class_priors=self._resolve_class_priors(problem),
            max_iter=self.max_iter,
            tol=self.tol,
            trace=True,
        )
        self.n_iter_ = result.n_iter
        self.consistency_ = result.consistency.numpy()
        if self.tol is not None and not result.converged:
            warnings.warn(f"the game did not converge in {self.max_iter} rounds", ConvergenceWarning, stacklevel=4)
        return np.asarray(result.x.cpu().numpy()[position])

    def _class_similarity(self, device: torch.device) -> torch.Tensor | None:
        if self.class_similarity is None:
            return None
        return torch.as_tensor(np.asarray(self.class_similarity, dtype=np.float64), device=device)

    def _resolve_class_priors(self, problem: TransductionProblem) -> torch.Tensor | None:
        if self.class_priors is None:
            return None
        if isinstance(self.class_priors, str):
            if self.class_priors != "empirical":
                raise ValueError(f"class_priors is {self.class_priors!r}; expected 'empirical', an array, or None")
            counts = np.bincount(problem.targets.codes[problem.targets.labelled], minlength=len(self.classes_))
            return torch.from_numpy(counts / counts.sum()).to(problem.device)
        return torch.as_tensor(np.asarray(self.class_priors, dtype=np.float64), device=problem.device)

    def _votes(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        votes = super()._votes(X)
        return votes if self.class_similarity is None else votes @ np.asarray(self.class_similarity, dtype=float).T

    def _prediction_weights(self) -> Floats:
        # Final distributions are nearly one-hot; the average over the neighbours is better calibrated.
        return random_walk_step(self.graph_, self.label_distributions_)

    def _confidence(self, codes: NDArray[np.integer]) -> Floats:
        walk = random_walk_step(self.graph_, self._vote_weights)[np.arange(len(codes)), codes]
        self.agreement_: Floats = np.asarray(walk).clip(0, 1)
        support, self._support = self._support, None
        if support is None or not self.labelled_mask_.any():
            return self.agreement_
        return order_by_support(self.graph_, self.agreement_, support, codes, self._targets.codes)


def _reordered(problem: TransductionProblem, order: NDArray[np.int64]) -> TransductionProblem:
    """Return the problem with its points in another order."""
    w = problem.w[order]
    w = sparse.csr_matrix((w.data, np.argsort(order).astype(w.indices.dtype)[w.indices], w.indptr), shape=w.shape)
    w.sort_indices()
    targets = replace(problem.targets, codes=problem.targets.codes[order])
    return replace(problem, w=w, targets=targets, initial=problem.initial[order], reached=problem.reached[order])


def order_by_support(
    w: sparse.csr_matrix, agreement: Floats, reached: Floats, codes: NDArray[np.integer], given: NDArray[np.integer]
) -> Floats:
    """Assign the values of the agreement to points in the order of their agreement and their support by given labels.

    The agreement is close to the accuracy on average, but high within a wrongly labelled cluster, too. Walks from the
    given labels reach such a cluster rarely, or from several classes. The support of a point with label c is
    sqrt(r_c) r_c / (r_c + r_d), where r are the diffused labels, each class divided by the square root of its total,
    and d is the class other than c that reaches the point most. The order is that of the agreement times the geometric
    mean of the supports where a two-step random walk ends. The more labels there are, the smaller the exponent of the
    supports: the inverse square root of the number per class.

    Args:
        w: similarities, shape (n, n), CSR.
        agreement: agreement of each point with its neighbourhood, shape (n,).
        reached: labels diffused over the graph, shape (n, m).
        codes: label of each point, shape (n,).
        given: class of each labelled point, shape (n,), -1 where unlabelled; labelled points, and those without
            agreement, keep their value.

    Returns:
        Confidences, shape (n,): a permutation of `agreement`. Costs O(nnz(w) + n (m + log n)).
    """
    rows, tiny = np.arange(len(codes)), np.finfo(np.float32).tiny
    others = reached / np.sqrt(np.maximum(reached.sum(axis=0), tiny))  # (n, m)
    own = others[rows, codes]
    others[rows, codes] = 0
    support = np.sqrt(own) * own / np.maximum(own + others.max(axis=1, initial=0), tiny)
    logarithm = np.log(np.maximum(support, tiny))[:, None]  # (n, 1)
    mean = random_walk_step(w, random_walk_step(w, logarithm))[:, 0]
    exponent = 1 / np.sqrt(np.mean(np.unique(given[given >= 0], return_counts=True)[1]))
    score = np.log(np.maximum(agreement, tiny)) + exponent * mean
    ordered, rows = agreement.copy(), np.flatnonzero((given < 0) & (agreement > 0))
    ordered[rows[np.argsort(score[rows], kind="stable")]] = np.sort(agreement[rows])
    return ordered


def random_walk_step(w: sparse.csr_matrix, x: Floats) -> Floats:
    """Compute one step of a random walk, D^-1 W X, shape (n, m); rows of points without neighbours are unchanged."""
    degree = np.asarray(w.sum(axis=1))  # (n, 1)
    # SciPy multiplies on one core, torch on all.
    reached = (to_torch(w) @ torch.from_numpy(x.astype(w.dtype, copy=False))).numpy()  # (n, m)
    return np.asarray(np.where(degree > 0, reached / np.where(degree > 0, degree, 1), x))
