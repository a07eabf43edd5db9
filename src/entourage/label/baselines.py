"""Baselines of the graph transduction game.

Harmonic functions, label spreading and Poisson learning each solve one sparse linear system on the graph, by conjugate
gradients. Label propagation iterates on the same graph. The linear SVM uses features only, without a graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from entourage.game.graph import Affinity, Negatives, Symmetry, normalize_degrees, to_torch
from entourage.game.metric_search import Metric
from entourage.label.base import GraphLabeller, TransductionProblem, apply_prior
from entourage.label.targets import Floats, Targets, ignore_class_count_warning


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor], b: Tensor, diagonal: Tensor, *, tol: float, max_iter: int
) -> tuple[Tensor, int, bool]:
    """Solve A F = B for a symmetric positive (semi)definite A; columns are independent but share the products with A.

    Args:
        apply: F -> A F.
        b: B, shape (n, m), in the range of A.
        diagonal: diagonal of A, shape (n, 1), positive: the preconditioner.
        tol: norm of the residual relative to b at which a column has converged.
        max_iter: maximum number of steps.

    Returns:
        F, shape (n, m), the number of steps, and whether all columns have converged.
    """
    x = torch.zeros_like(b)
    residual = b.clone()
    direction = z = residual / diagonal
    power = (residual * z).sum(dim=0)  # (m,)
    target = tol * b.norm(dim=0)
    for step in range(max_iter):
        if bool((residual.norm(dim=0) <= target).all()):
            return x, step, True
        image = apply(direction)
        curvature = (direction * image).sum(dim=0)
        # A converged column has curvature 0; its step size is set to 0 instead of 0/0.
        alpha = torch.where(curvature > 0, power / curvature.clamp_min(torch.finfo(b.dtype).tiny), 0)
        x = x + alpha * direction
        residual = residual - alpha * image
        z = residual / diagonal
        previous, power = power, (residual * z).sum(dim=0)
        beta = torch.where(previous > 0, power / previous.clamp_min(torch.finfo(b.dtype).tiny), 0)
        direction = z + beta * direction
    return x, max_iter, bool((residual.norm(dim=0) <= target).all())


MIN_CONDUCTANCE = 1e-12  # degree-normalised weight below which `_components` ignores an edge


class LinearLabeller(GraphLabeller):
    """Base class of labellers that solve A F = B; `tol` bounds the relative residual, `n_iter_` counts the steps."""

    def _solve(self, apply: Callable[[Tensor], Tensor], b: Tensor, diagonal: Tensor) -> Floats:
        tol = 0.0 if self.tol is None else self.tol
        x, steps, solved = conjugate_gradients(apply, b, diagonal, tol=tol, max_iter=self.max_iter)
        self.n_iter_ = max(steps, 1)  # scikit-learn requires at least 1
        if not solved and self.tol is not None:
            warnings.warn(f"not solved to {tol:g} in {self.max_iter} steps", ConvergenceWarning, stacklevel=5)
        return np.asarray(x.cpu().numpy())


class LabelHarmonic(LinearLabeller):
    """Gaussian fields and harmonic functions (Zhu, Ghahramani and Lafferty, 2003).

    Labelled points are fixed, and every other point is the weighted mean of its neighbours: L_UU F_U = W_UL Y_L. With
    few labels in a large graph, F is nearly constant except close to the labels, and the method fails.

    Args:
        n_neighbors, affinity, squared, symmetrize, normalize, negatives, metric, classes, max_iter, tol, device: see
            `GraphLabeller`.
    """

    def _distribute(self, problem: TransductionProblem) -> Floats:
        w, degree = _weights_and_degrees(problem)
        free = torch.from_numpy(~problem.targets.labelled & problem.reached).to(w.device)[:, None]  # (n, 1)
        y = _as_float64(problem.targets.one_hot(), w)
        f = self._solve(lambda v: torch.where(free, degree * v - w @ v, 0), torch.where(free, w @ y, 0), degree)
        return apply_prior(np.clip(f, 0, None) + problem.targets.one_hot(), problem)


class LabelSpreading(LinearLabeller):
    """Learning with local and global consistency (Zhou et al., 2004): F = (1 - alpha) (I - alpha D^-1/2 W D^-1/2)^-1 Y.

    Labels are not fixed: the neighbours of a labelled point may change its label. The arguments that are not listed
    here are those of `GraphLabeller`.

    Args:
        alpha: weight of the neighbours relative to the point's own label, in (0, 1).
    """

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] | None = "auto",
        affinity: Affinity | Literal["precomputed"] = "self_tuning",
        *,
        alpha: float = 0.99,
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
        self.alpha = alpha

    def _distribute(self, problem: TransductionProblem) -> Floats:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; expected a number between 0 and 1")
        w, degree = _weights_and_degrees(problem)
        root = degree.sqrt()  # (n, 1)
        y = (1 - self.alpha) * _as_float64(problem.targets.one_hot(), w)
        f = self._solve(lambda v: v - self.alpha * (w @ (v / root)) / root, y, torch.ones_like(degree))
        return apply_prior(np.clip(f, 0, None), problem)


class PoissonLearning(LinearLabeller):
    """Poisson learning (Calder, Cook, Thorpe and Slepcev, 2020): L U = sum over labels of (y_j - mean y) delta_j.

    Labels are sources and sinks instead of fixed values, so that their influence does not vanish in large graphs. Each
    connected component of the graph is a separate problem, centred by its own mean. Scores divided by their root mean
    square are converted to distributions by softmax. Labels are not fixed: the neighbours of a labelled point may
    change its label.

    Args:
        n_neighbors, affinity, squared, symmetrize, normalize, negatives, metric, classes, max_iter, tol, device: see
            `GraphLabeller`.
    """

    def _distribute(self, problem: TransductionProblem) -> Floats:
        w, degree = _weights_and_degrees(problem)
        n_components, component = _components(problem.w)
        y = problem.targets.one_hot().astype(np.float64)
        class_fractions = _mean_by_component(
            component, n_components, y, problem.targets.labelled.astype(np.float64)
        )  # (n_components, m)
        b = np.where(problem.targets.labelled[:, None], y - class_fractions[component], 0)
        u = self._solve(lambda v: degree * v - w @ v, _as_float64(b, w), degree)
        u = u - _mean_by_component(component, n_components, u, degree.cpu().numpy().ravel())[component]
        power = (u[:, problem.targets.seen] ** 2).mean(axis=1, keepdims=True)  # (n, 1)
        spread = np.sqrt(_mean_by_component(component, n_components, power, np.ones(len(component))))[component]
        return apply_prior(_as_distributions(u, spread, class_fractions[component], problem.targets.seen), problem)


def _components(w: sparse.csr_matrix) -> tuple[int, NDArray[np.int32]]:
    """Return the number of connected components and the component of each point, shape (n,).

    Edges with weights below the precision of float64 are ignored: across them no label mass flows numerically, and the
    linear system of a joint component would have no solution.
    """
    edges = normalize_degrees(w).copy()  # the result shares its indices with w
    edges.data = (edges.data > MIN_CONDUCTANCE).astype(np.float32)
    edges.eliminate_zeros()
    return connected_components(edges, directed=True, connection="strong")


def _as_distributions(u: Floats, spread: Floats, class_fractions: Floats, seen: NDArray[np.bool_]) -> Floats:
    x = softmax(np.where(seen, u / np.where(spread > 0, spread, 1), -np.inf), axis=1)
    # In a component with labels of one class only, u is constant: all of its points get that class.
    return np.asarray(np.where(np.ptp(u[:, seen], axis=1, keepdims=True) > 0, x, class_fractions))


def _mean_by_component(component: NDArray[np.integer], n_components: int, values: Floats, weight: Floats) -> Floats:
    """Compute the weighted mean of the rows of each component, shape (n_components, m); 0 where the weights are 0."""
    total = np.bincount(component, weights=weight, minlength=n_components)[:, None]
    sums = np.stack(
        [np.bincount(component, weights=weight * column, minlength=n_components) for column in values.T], axis=1
    )
    return np.asarray(sums / np.where(total > 0, total, 1))


def _weights_and_degrees(problem: TransductionProblem) -> tuple[Tensor, Tensor]:
    """Return W in float64, which ill-conditioned systems require, and its degrees, shape (n, 1), 0 replaced by 1."""
    w = to_torch(problem.w.astype(np.float64), problem.device)
    degree = torch.from_numpy(np.asarray(problem.w.sum(axis=1, dtype=np.float64))).to(problem.device)
    return w, torch.where(degree > 0, degree, 1)


def _as_float64(values: Floats, like: Tensor) -> Tensor:
    return torch.from_numpy(values.astype(np.float64)).to(like.device)


class LabelPropagation(GraphLabeller):
    """Label propagation (Zhu and Ghahramani, 2002): each iteration sets every point to the mean of its neighbours.

    Labelled points are fixed. The limit is the solution of `LabelHarmonic`; `tol` bounds the change of the last
    iteration relative to the sum of all changes.

    Args:
        n_neighbors, affinity, squared, symmetrize, normalize, negatives, metric, classes, max_iter, tol, device: see
            `GraphLabeller`.
    """

    def _distribute(self, problem: TransductionProblem) -> Floats:
        w = to_torch(problem.w, problem.device)
        initial = torch.from_numpy(problem.targets.one_hot().astype(problem.w.dtype)).to(problem.device)
        labelled = torch.from_numpy(problem.targets.labelled).to(problem.device)[:, None]  # (n, 1)
        f, total_change, converged, self.n_iter_ = initial, 0.0, False, 0
        while self.n_iter_ < self.max_iter and not converged:
            mean = w @ f  # (n, m)
            total = mean.sum(dim=1, keepdim=True)
            mean = torch.where(labelled, initial, mean / torch.where(total > 0, total, 1))
            last_change = float((mean - f).abs().sum())
            total_change += last_change
            f, converged = mean, self.tol is not None and last_change <= self.tol * total_change
            self.n_iter_ += 1
        if self.tol is not None and not converged:
            warnings.warn(f"labels did not converge in {self.max_iter} rounds", ConvergenceWarning, stacklevel=4)
        return apply_prior(np.asarray(f.cpu().numpy()), problem)


class LinearSVMLabeller(GraphLabeller):
    """Linear SVM trained on the labelled points, without a graph (the alternative to the game in chapter 3).

    With affinity="precomputed" the features of a point are its similarities to all points. Distributions are the
    softmax of the margins.

    Args:
        affinity, negatives, classes, max_iter: see `GraphLabeller`.
        n_neighbors, squared, symmetrize, normalize, metric, tol, device: without effect.
    """

    def _build_graph(self, X: Any, device: torch.device) -> sparse.csr_matrix:
        if self.affinity == "precomputed":
            return super()._build_graph(X, device)
        self._features, self._by_similarities = X, False
        return sparse.csr_matrix((X.shape[0], X.shape[0]))

    def _use_graph(self, graph: sparse.csr_matrix, shift: float) -> sparse.csr_matrix:
        self._features, self._by_similarities = graph, True
        return super()._use_graph(graph, shift)

    def _find_reachable(self, targets: Targets, initial: Floats, *, has_prior: bool) -> NDArray[np.bool_]:
        return np.ones(len(targets.codes), dtype=bool)

    def _distribute(self, problem: TransductionProblem) -> Floats:
        labelled, codes = problem.targets.labelled, problem.targets.codes
        self._trained_classes = np.unique(codes[labelled])
        self._svm, self.n_iter_ = None, 1
        if len(self._trained_classes) > 1:
            self._svm = LinearSVC(max_iter=self.max_iter, random_state=0)
            with ignore_class_count_warning():
                self._svm.fit(self._features[labelled], codes[labelled])
            self.n_iter_ = int(np.max(self._svm.n_iter_))
        x = apply_prior(self._margins(self._features), problem)
        del self._features
        return np.where(labelled[:, None], problem.initial, x)

    def _votes(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        check_is_fitted(self)
        features = validate_data(
            self, X, reset=False, accept_sparse=self._by_similarities, dtype=[np.float32, np.float64]
        )
        return self._margins(features)

    def _margins(self, features: Any) -> Floats:
        x = np.zeros((features.shape[0], len(self.classes_)), dtype=np.float32)
        if self._svm is None:
            x[:, self._trained_classes] = 1
            return x
        margins = self._svm.decision_function(features)
        x[:, self._trained_classes] = softmax(
            np.stack([-margins, margins], 1) if margins.ndim == 1 else margins, axis=1
        )
        return x
