"""Base class of the transductive classifiers, with the checks of precomputed graphs and helpers for distributions."""

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
from entourage.game.metric_search import Metric
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
    """Return an array as a tensor; copy it only if it is read-only or has negative strides, unsupported by torch."""
    return torch.from_numpy(X if X.flags.writeable and min(X.strides, default=0) >= 0 else X.copy())


def check_graph(w: Any, negatives: Negatives) -> tuple[sparse.csr_matrix, float]:
    """Validate a precomputed similarity matrix and convert it to a graph without loops and negative weights.

    Args:
        w: similarities, shape (n, n), symmetric and finite, dense or sparse.
        negatives: treatment of negative similarities: "error", "clamp" or "shift".

    Returns:
        The graph, shape (n, n), CSR, and the constant that was added to its weights; see `required_shift`.

    Raises:
        ValueError: the matrix is not square, finite and symmetric, or it has negative weights and `negatives` is
            "error".
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
    if shift and dense:  # in a dense matrix 0 is a similarity, too
        graph = sparse.csr_matrix(graph.toarray() + shift * (1 - np.eye(len(w), dtype=w.dtype)))
    else:
        graph.data = graph.data + shift
    graph.data = graph.data.clip(min=0)
    graph.eliminate_zeros()
    return graph, shift


def shift_similarities(w: Any, shift: float, negatives: Negatives) -> Any:
    """Treat the similarities of new points, shape (q, n), as `check_graph` treats a graph: add its shift, clamp at 0.

    In a CSR matrix the shift is added to the stored entries.

    Raises:
        ValueError: there are negative similarities and `negatives` is "error".
    """
    stored = w if isinstance(w, np.ndarray) else w.data
    if negatives == "error":
        required_shift(as_tensor(stored), negatives, "X")
    shifted = (stored + shift).clip(min=0)
    return shifted if isinstance(w, np.ndarray) else sparse.csr_matrix((shifted, w.indices, w.indptr), w.shape)


def to_distributions(x: Floats, fallback: Floats | float = 0.0) -> Floats:
    """Normalise rows to sum to 1, shape (n, m); rows of zeros become `fallback`, a value or rows of shape (n, m)."""
    total = x.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, x / np.where(total > 0, total, 1), fallback))


def apply_prior(x: Floats, problem: TransductionProblem) -> Floats:
    """Multiply the distributions of unlabelled points by their priors, for methods without priors; rows sum to 1."""
    weighted = np.where(problem.targets.labelled[:, None], x, x * problem.initial)
    return to_distributions(weighted, problem.initial)


def has_unique_maximum(x: Floats) -> NDArray[np.bool_]:
    """Return a mask of the rows with a unique maximum, shape (n,); a tie means that no label influenced the row."""
    if x.shape[1] == 1:
        return np.ones(len(x), dtype=bool)
    best = np.partition(x, -2, axis=1)[:, -2:]  # (n, 2)
    return np.asarray(best[:, 1] - best[:, 0] > 1e-7)


@dataclass(frozen=True)
class TransductionProblem:
    """Input of `GraphLabeller._distribute`.

    Attributes:
        w: similarities, shape (n, n), symmetric, non-negative, zero diagonal.
        targets: the labels.
        initial: initial distributions, shape (n, m): one-hot where labelled, the prior elsewhere.
        reached: mask of the points whose component of the graph has a label or an informative prior, shape (n,).
        device: device of the computation.
    """

    w: sparse.csr_matrix
    targets: Targets
    initial: Floats
    reached: NDArray[np.bool_]
    device: torch.device


class GraphLabeller(ClassifierMixin, BaseEstimator):
    """Base class of transductive classifiers: label all points from a few labelled ones, over a similarity graph.

    Subclasses implement `_distribute`, which spreads the labels. This class reads labels and priors, builds or
    validates the graph, finds the points that no label reaches, and predicts new points.

    Args:
        n_neighbors: neighbours of each point; "auto" for floor(log2 n) + 1, None for all pairs.
        affinity: "self_tuning", "gaussian", "cosine", "pearson", or "precomputed" to pass a graph as X.
        squared: use squared distances in the self-tuning kernel, as published.
        symmetrize: "max", "mean" or "mutual".
        normalize: divide each weight by the square root of the degrees of both nodes; no effect on a precomputed graph.
        negatives: treatment of negative similarities: "error", "clamp" or "shift".
        metric: "euclidean"; "precomputed" to pass distances as X, shape (n, n); a metric of scikit-learn's
            `pairwise_distances`, such as "manhattan"; or a function of two rows. All but "euclidean" of dense features
            compare all pairs, and are for the affinities "self_tuning" and "gaussian".
        classes: all classes, if some may have no label.
        max_iter: maximum number of iterations.
        tol: tolerance of the convergence criterion, which depends on the method; None runs `max_iter` iterations.
        device: "auto", "cpu", "cuda"...

    Attributes:
        classes_: the classes, shape (m,).
        transduction_: label of each point, shape (n,); -1 ("" for text labels) where it is undecided.
        label_distributions_: final distribution of each point, shape (n, m); its prior where no label reaches it.
        confidence_: confidence of each label, in [0, 1], shape (n,); 0 where there is no label.
        labelled_mask_: mask of the labelled points, shape (n,).
        unreached_: indices of the points whose component of the graph has neither a label nor an informative prior.
        undecided_: indices of the points without a label: the unreached ones and ties.
        graph_: the similarities, shape (n, n), CSR.
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
        metric: Metric = "euclidean",
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
        self.metric = metric
        self.classes = classes
        self.max_iter = max_iter
        self.tol = tol
        self.device = device

    @abstractmethod
    def _distribute(self, problem: TransductionProblem) -> Floats:
        """Compute distributions over the classes, shape (n, m). Rows outside `problem.reached` are ignored."""

    def fit(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike, prior: ArrayLike | None = None) -> Self:
        """Label all points.

        Args:
            X: features, shape (n, d), dense or sparse; with affinity="precomputed" the similarities, shape (n, n), also
                dense or sparse; with metric="precomputed" the distances, shape (n, n).
            y: labels, shape (n,), -1 or NaN where unlabelled ("" or None are also accepted among text labels).
            prior: prior distribution of each point, shape (n, m), columns in the order of `classes_`, 0 for excluded
                labels; uniform by default.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: the data, labels or priors are invalid or do not match.
        """
        X, y = self._validated(X, fill_missing_labels(y))
        targets = read_targets(y, self.classes)
        initial = initial_distributions(targets, prior)
        device = resolve_device(self.device)
        return self._transduce(self._build_graph(X, device), targets, initial, device, has_prior=prior is not None)

    def fit_graph(self, w: sparse.csr_matrix, y: ArrayLike, prior: ArrayLike | None = None) -> Self:
        """Label all points of a graph that has already been validated; `affinity` is ignored.

        Equivalent to `fit` with affinity="precomputed", but faster if one graph is used several times.

        Args:
            w: similarities, shape (n, n), as returned by `entourage.label.base.check_graph`.
            y: see `fit`.
            prior: see `fit`.

        Returns:
            The fitted estimator.
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
        """Set the final distributions and derive labels, confidences and the weights of predictions from them.

        Args:
            x: distributions, shape (n, m), the prior where no label reaches.

        Returns:
            The estimator.
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
        """Compute class probabilities of new points from their similarities to the fitted points, in one iteration.

        Args:
            X: features, shape (q, d); with affinity="precomputed" the similarities to the fitted points, shape (q, n),
                with metric="precomputed" the distances.

        Returns:
            Distributions, shape (q, m); uniform for a point if no label reaches any of its neighbours.
        """
        votes = self._votes(X)
        return to_distributions(votes, self._targets.seen / self._targets.seen.sum())

    def predict(self, X: ArrayLike | sparse.spmatrix) -> NDArray[np.generic]:
        """Predict labels of new points.

        Args:
            X: see `predict_proba`.

        Returns:
            Labels, shape (q,); -1 ("" for text labels) where no label reaches a point or several labels tie.
        """
        votes = self._votes(X)
        decided = votes.any(axis=1) & has_unique_maximum(to_distributions(votes))
        return self._targets.decode(np.where(decided, votes.argmax(axis=1), -1))

    def score(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the accuracy on the labelled points of y, so that cross-validation works with unlabelled points.

        Args:
            X: see `predict_proba`.
            y: labels, shape (q,), -1 where unlabelled.
            sample_weight: weights of the points, shape (q,).

        Returns:
            The accuracy; undecided points count as wrong.
        """
        return labelled_accuracy(self.predict(X), y, sample_weight)

    def _validated(self, X: ArrayLike | sparse.spmatrix, y: ArrayLike) -> tuple[Any, NDArray[np.generic]]:
        check_choice("affinity", self.affinity, (*get_args(Affinity), "precomputed"))
        features, labels = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64])
        return features, labels

    def _build_graph(self, X: Any, device: torch.device) -> sparse.csr_matrix:
        if self.affinity == "precomputed":
            return self._use_graph(*check_graph(X, self.negatives))
        self._neighbor_graph = NeighborGraph(
            self._as_points(X, device),
            self.n_neighbors,
            affinity=self.affinity,
            squared=self.squared,
            negatives=self.negatives,
            symmetrize=self.symmetrize,
            normalize=self.normalize,
            metric=self.metric,
        )
        return self._neighbor_graph.w

    def _as_points(self, X: Any, device: torch.device) -> Any:
        """Return dense features with Euclidean distances as a tensor, and everything else unchanged."""
        dense = self.metric == "euclidean" and isinstance(X, np.ndarray)
        return as_tensor(X).to(device) if dense else X

    def _use_graph(self, graph: sparse.csr_matrix, shift: float) -> sparse.csr_matrix:
        self._neighbor_graph = None
        self._shift = shift
        return graph

    def _find_reachable(self, targets: Targets, initial: Floats, *, has_prior: bool) -> NDArray[np.bool_]:
        """Return a mask of the points whose component has a label or a non-uniform prior, shape (n,)."""
        # W is symmetric, so its strong components are its components; they are computed without a transposed copy.
        _, component = connected_components(self.graph_, directed=True, connection="strong")
        source = targets.labelled
        if has_prior:
            source = source | (np.ptp(initial[:, targets.seen], axis=1) > 1e-6)
        return np.asarray(np.isin(component, np.unique(component[source])))

    def _votes(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        """Compute the unnormalised class scores of new points, shape (q, m)."""
        check_is_fitted(self)
        self._check_similarities(X)
        queries: Any = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float32, np.float64])
        if self._neighbor_graph is not None:
            points = self._as_points(queries, torch.device("cpu"))
            return np.asarray(self._neighbor_graph.weights_to(points) @ self._vote_weights)
        return np.asarray(shift_similarities(queries, self._shift, self.negatives) @ self._vote_weights)

    def _check_similarities(self, X: Any) -> None:
        """Raise ValueError if X holds features after `fit_graph`, which accepts similarities only."""
        n = self.n_features_in_
        if self._neighbor_graph is None and self.affinity != "precomputed" and np.shape(X)[1:] != (n,):
            expected = f"expected the similarities of new points to these, shape (q, {n})"
            raise ValueError(f"X has shape {np.shape(X)}, but the model was fitted to a graph; {expected}")

    def _prediction_weights(self) -> Floats:
        """Return the distributions that predictions of new points average, shape (n, m)."""
        return self.label_distributions_

    def _confidence(self, codes: NDArray[np.integer]) -> Floats:
        """Compute the confidence of the labels `codes`, shape (n,)."""
        return np.asarray(self.label_distributions_[np.arange(len(codes)), codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = "precomputed" in (self.affinity, self.metric)
        tags.input_tags.sparse = self.metric != "precomputed"
        return tags
