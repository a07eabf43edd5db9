"""Graphs and features from outside, checked and made fit for the game.

Distributions over the classes, a row a point: made of votes, weighed by what is known beforehand, and decided.

The face that the game and its rivals share: a scikit-learn classifier that labels a whole data set at once.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from entourage.compute import resolve_device
from entourage.game.graph import Affinity, Negatives, NeighborGraph, Symmetry, required_shift
from entourage.label.targets import (
    Floats,
    Targets,
    fill_missing_labels,
    initial_distributions,
    labelled_accuracy,
    read_targets,
)
from entourage.validation import check_choice


def as_tensor(X: Any) -> torch.Tensor:
    """The array as a tensor.

    Copied only if it must not be written, as those that pandas hands out, or runs backwards, which torch cannot.
    """
    return torch.from_numpy(X if X.flags.writeable and min(X.strides, default=0) >= 0 else X.copy())


def check_graph(w: Any, negatives: Negatives) -> tuple[sparse.csr_matrix, float]:
    """A similarity matrix from outside, fit for the game: square, finite, symmetric, non-negative, without loops.

    Returns:
        The graph, and what was added to its weights: see `required_shift`.

    Raises:
        ValueError: where it is not.
    """
    w = check_array(w, accept_sparse="csr", dtype=[np.float32, np.float64])
    if w.shape[0] != w.shape[1]:
        raise ValueError(f"the precomputed graph has shape {w.shape}; expected a square matrix")
    dense = not sparse.issparse(w)
    graph = sparse.csr_matrix(w, copy=True)
    graph.setdiag(0)
    graph.eliminate_zeros()
    graph.sort_indices()
    gap = abs(graph - graph.T)
    if gap.nnz and gap.max() > 1e-5 * abs(graph).max():
        worst = gap.tocoo()
        i, j = (int(v[worst.data.argmax()]) for v in (worst.row, worst.col))
        raise ValueError(
            f"the precomputed graph is not symmetric: w[{i}, {j}] = {graph[i, j]:.4g} but w[{j}, {i}] = "
            f"{graph[j, i]:.4g}; expected equal weights (see entourage.game.symmetrize)"
        )
    shift = required_shift(torch.from_numpy(graph.data), negatives) if graph.nnz else 0.0
    if shift and dense:  # every pair has a similarity, be it 0
        graph = sparse.csr_matrix(graph.toarray() + shift * (1 - np.eye(len(w), dtype=w.dtype)))
    else:
        graph.data = graph.data + shift
    graph.data = graph.data.clip(min=0)
    graph.eliminate_zeros()
    return graph, shift


def shift_similarities(w: Any, shift: float, negatives: Negatives) -> Any:
    """Similarities of new points to those of a graph, shape (q, n), lifted as the graph was, dense or CSR as they came.

    Raises:
        ValueError: if there are negative ones and they are to be an error.
    """
    stored = w if isinstance(w, np.ndarray) else w.data
    if negatives == "error":
        required_shift(as_tensor(stored), negatives, "X")
    shifted = (stored + shift).clip(min=0)
    return shifted if isinstance(w, np.ndarray) else sparse.csr_matrix((shifted, w.indices, w.indptr), w.shape)


def to_distributions(x: Floats, fallback: Floats | float = 0.0) -> Floats:
    """Rows over their sum, shape (n, m); those that have nothing are `fallback`, a value or such rows."""
    total = x.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, x / np.where(total > 0, total, 1), fallback))


def apply_prior(x: Floats, problem: TransductionProblem) -> Floats:
    """Weighs the answer of a method that knows no priors by the prior of each unlabelled point; rows sum to 1."""
    weighted = np.where(problem.targets.labelled[:, None], x, x * problem.initial)
    return to_distributions(weighted, problem.initial)


def has_unique_maximum(x: Floats) -> NDArray[np.bool_]:
    """Which rows have one label ahead of all others, shape (n,): a tie means that nothing that counts reached them."""
    if x.shape[1] == 1:
        return np.ones(len(x), dtype=bool)
    best = np.partition(x, -2, axis=1)[:, -2:]  # (n, 2)
    return np.asarray(best[:, 1] - best[:, 0] > 1e-7)


@dataclass(frozen=True)
class TransductionProblem:
    """What a method is given to decide.

    Attributes:
        w: similarities, shape (n, n), symmetric, non-negative, zero diagonal.
        targets: the labels.
        start: the initial distributions, shape (n, m): one-hot where labelled, the prior elsewhere.
        reached: the points that a label, or an informative prior, can speak to, shape (n,).
        device: where to compute.
    """

    w: sparse.csr_matrix
    targets: Targets
    initial: Floats
    reached: NDArray[np.bool_]
    device: torch.device


class GraphLabeller(ClassifierMixin, BaseEstimator):
    """Labels every point from the few that are labelled, over a graph of similarities.

    Subclasses say how labels spread in `_distribute`. Everything else is done here, once: reading labels and priors,
    building or checking the graph, finding what no label reaches, and answering for new points.

    Args:
        n_neighbors: neighbours of each point; "auto" for floor(log2 n) + 1, None for all pairs.
        affinity: "self_tuning", "gaussian", "cosine", "pearson", or "precomputed" for a graph of your own.
        squared: self-tuning with squared distances, as published.
        symmetrize: "max", "mean" or "mutual".
        normalize: divide weights by the root of both ends' degrees; of no effect on a precomputed graph.
        negatives: "error", "clamp" or "shift" negative similarities.
        classes: all classes, if some may be without a label.
        max_iter: the most rounds.
        tol: how exact the answer has to be; each method says in what.
        device: "auto", "cpu", "cuda"...

    Attributes:
        classes_: the classes, shape (m,).
        transduction_: the label of each point, shape (n,); -1 (or "" among text) where it is undecided.
        label_distributions_: the distribution each point ended with, shape (n, m); its prior where no label reaches.
        confidence_: how sure the label of each point is, in [0, 1], shape (n,); 0 where there is none.
        given_: which points were labelled, shape (n,).
        unreached_: positions of the points in whose part of the graph nothing is labelled.
        undecided_: positions of the points without a label: the unreached, and those that ended in a tie.
        graph_: the similarities that were used, shape (n, n), CSR.
    """

    _neighbor_graph: NeighborGraph | None

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] | None = "auto",
        affinity: Affinity | Literal["precomputed"] = "self_tuning",
        *,
        squared: bool = True,
        symmetrize: Symmetry = "mean",
        normalize: bool = True,
        negatives: Negatives = "error",
        classes: ArrayLike | None = None,
        max_iter: int = 1000,
        tol: float | None = 1e-6,
        device: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.affinity = affinity
        self.squared = squared
        self.symmetrize = symmetrize
        self.normalize = normalize
        self.negatives = negatives
        self.classes = classes
        self.max_iter = max_iter
        self.tol = tol
        self.device = device

    @abstractmethod
    def _distribute(self, problem: TransductionProblem) -> Floats:
        """Distributions over the classes for all points, shape (n, m). Rows outside `problem.reached` are ignored."""

    def fit(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike, prior: ArrayLike | None = None) -> Self:
        """Labels all points.

        Args:
            X: features, shape (n, d); with affinity="precomputed" the similarities, shape (n, n), dense or sparse.
            y: labels, shape (n,), -1 where unlabelled (among text also "" or None).
            prior: what is known beforehand of each point, shape (n, m), columns in the order of `classes_`, 0 for a
                label the point cannot have; uniform by default.

        Returns:
            The estimator, with `transduction_` and the other attributes set.

        Raises:
            ValueError: on data, labels or priors that do not fit; the message says which, where, and what was expected.
        """
        X, y = self._validated(X, fill_missing_labels(y))
        targets = read_targets(y, self.classes)
        initial = initial_distributions(targets, prior)
        device = resolve_device(self.device)
        return self._transduce(self._build_graph(X, device), targets, initial, device, has_prior=prior is not None)

    def fit_graph(self, w: sparse.csr_matrix, y: ArrayLike, prior: ArrayLike | None = None) -> Self:
        """Labels all points of a graph that need not be checked again, whatever `affinity` says.

        What `fit` does with affinity="precomputed", in less time where one graph is used several times.

        Args:
            w: similarities, shape (n, n), as `entourage.label.base.check_graph` gives them.
            y, prior: as for `fit`.
        """
        labels = np.asarray(fill_missing_labels(y))
        check_consistent_length(w, labels)
        targets = read_targets(labels, self.classes)
        initial = initial_distributions(targets, prior)
        self.n_features_in_ = w.shape[1]
        return self._transduce(
            self._use_graph(w, 0.0), targets, initial, resolve_device(self.device), has_prior=prior is not None
        )

    def _transduce(
        self, graph: sparse.csr_matrix, targets: Targets, initial: Floats, device: torch.device, *, has_prior: bool
    ) -> Self:
        self.classes_ = targets.classes
        self.graph_ = graph
        reached = self._find_reachable(targets, initial, has_prior=has_prior)
        n = len(reached)
        x = self._distribute(TransductionProblem(self.graph_, targets, initial, reached, device))
        self.unreached_ = np.flatnonzero(~reached)
        if len(self.unreached_):
            warnings.warn(
                f"no label reaches {len(self.unreached_)} of {n} points: they stay undecided",
                stacklevel=3,
            )
        self._targets = targets
        self.labelled_mask_ = targets.labelled
        self.set_distributions(np.where(reached[:, None], x, initial))
        if (tied := len(self.undecided_) - len(self.unreached_)) > 0:
            warnings.warn(f"{tied} of {n} points end in a tie: they stay undecided", stacklevel=3)
        return self

    def set_distributions(self, x: Floats) -> Self:
        """Take distributions for what was found: labels, confidences and the answers for new points follow from them.

        Args:
            x: distributions, shape (n, m), the prior where no label reaches.
        """
        self.label_distributions_ = x
        reached = np.ones(len(x), dtype=bool)
        reached[self.unreached_] = False
        decided = self.labelled_mask_ | (reached & has_unique_maximum(x[:, self._targets.seen]))
        self.undecided_ = np.flatnonzero(~decided)
        codes = x.argmax(axis=1)
        self.transduction_ = self._targets.decode(np.where(decided, codes, -1))
        self._vote_weights = np.where(reached[:, None], self._prediction_weights(), 0)
        self.confidence_ = np.where(decided, self._confidence(codes).clip(0, 1), 0)
        return self

    def predict_proba(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        """Class probabilities of new points, which play one round against the fitted population.

        Args:
            X: features, shape (q, d); with affinity="precomputed" the similarities to the fitted points, shape (q, n).

        Returns:
            Distributions, shape (q, m); uniform for a point none of whose neighbours was reached by a label.
        """
        votes = self._votes(X)
        return to_distributions(votes, self._targets.seen / self._targets.seen.sum())

    def predict(self, X: ArrayLike | sparse.spmatrix) -> NDArray[np.generic]:
        """Labels of new points, shape (q,). For X see `predict_proba`.

        They are -1 (or "" among text) where no label reaches, or where several are level: a tie is no decision here
        either.
        """
        votes = self._votes(X)
        decided = votes.any(axis=1) & has_unique_maximum(to_distributions(votes))
        return self._targets.decode(np.where(decided, votes.argmax(axis=1), -1))

    def score(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on the labelled points of y, so that cross-validation works with unlabelled ones.

        A point that stays undecided counts as wrong.
        """
        return labelled_accuracy(self.predict(X), y, sample_weight)

    def _validated(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike) -> tuple[Any, NDArray[np.generic]]:
        check_choice("affinity", self.affinity, (*get_args(Affinity), "precomputed"))
        accept_sparse = "csr" if self.affinity == "precomputed" else False
        features, labels = validate_data(self, X, y, accept_sparse=accept_sparse, dtype=[np.float32, np.float64])
        return features, labels

    def _build_graph(self, X: Any, device: torch.device) -> sparse.csr_matrix:
        if self.affinity == "precomputed":
            return self._use_graph(*check_graph(X, self.negatives))
        self._neighbor_graph = NeighborGraph(
            as_tensor(X).to(device),
            self.n_neighbors,
            affinity=self.affinity,
            squared=self.squared,
            negatives=self.negatives,
            symmetrize=self.symmetrize,
            normalize=self.normalize,
        )
        return self._neighbor_graph.w

    def _use_graph(self, graph: sparse.csr_matrix, shift: float) -> sparse.csr_matrix:
        """Take a graph from outside."""
        self._neighbor_graph = None
        self._shift = shift
        return graph

    def _find_reachable(self, targets: Targets, initial: Floats, *, has_prior: bool) -> NDArray[np.bool_]:
        """Which points share a part of the graph with a label, or with a prior that prefers some label, shape (n,)."""
        # W is symmetric, so strong components are the components, and they are found without a transposed copy.
        _, component = connected_components(self.graph_, directed=True, connection="strong")
        source = targets.labelled
        if has_prior:
            source = source | (np.ptp(initial[:, targets.seen], axis=1) > 1e-6)
        return np.asarray(np.isin(component, np.unique(component[source])))

    def _votes(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        """What the fitted population says of new points, shape (q, m)."""
        check_is_fitted(self)
        self._check_similarities(X)
        accept_sparse = "csr" if self._neighbor_graph is None else False
        queries: Any = validate_data(self, X, reset=False, accept_sparse=accept_sparse, dtype=[np.float32, np.float64])
        if self._neighbor_graph is not None:
            return np.asarray(self._neighbor_graph.weights_to(as_tensor(queries)) @ self._vote_weights)
        return np.asarray(shift_similarities(queries, self._shift, self.negatives) @ self._vote_weights)

    def _check_similarities(self, X: Any) -> None:
        """Refuse features where `fit_graph` was given a graph, which knows none, whatever `affinity` says."""
        n = self.n_features_in_
        if self._neighbor_graph is None and self.affinity != "precomputed" and np.shape(X)[1:] != (n,):
            expected = f"expected the similarities of new points to these, shape (q, {n})"
            raise ValueError(f"X has shape {np.shape(X)}, and labels were found over a graph of {n} points; {expected}")

    def _prediction_weights(self) -> Floats:
        """What each fitted point says when a new one asks, shape (n, m): its own distribution."""
        return self.label_distributions_

    def _confidence(self, codes: NDArray[np.integer]) -> Floats:
        """Confidence in the label `codes` of each point, shape (n,)."""
        return np.asarray(self.label_distributions_[np.arange(len(codes)), codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.input_tags.sparse = self.affinity == "precomputed"
        return tags
