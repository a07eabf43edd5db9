"""A transductive classifier that weights scales of features, graphs and methods by hiding some of the given labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from entourage.compute import resolve_device
from entourage.game.dynamics import match_class_priors
from entourage.label.base import has_unique_maximum, to_distributions
from entourage.label.ensemble.members import (
    FittedMember,
    GraphMember,
    Graphs,
    MemberSpec,
    Views,
    fit_member,
    hidden_folds,
    list_members,
    mix,
)
from entourage.label.ensemble.stacking import (
    MAX_STANDARD_ERROR,
    best_sharpness,
    confidence_exponent,
    sharpen,
    stacking_weights,
    standard_error,
)
from entourage.label.ensemble.views import FeatureViews
from entourage.label.targets import (
    Floats,
    Targets,
    fill_missing_labels,
    initial_distributions,
    labelled_accuracy,
    read_targets,
)
from entourage.label.transduction import GraphTransduction

MIN_HIDDEN = 4  # labels that have to be hidden before the members are weighted by them
MAX_SELECTION = 10_000  # points among which the members are weighted; a random subset of larger sets
MIN_WEIGHT = 0.02  # of a member that is kept
# Without hidden labels, methods on graphs are preferred: they use the unlabelled points, too.
UNSELECTED_WEIGHTS = {"game": 1.0, "poisson": 3.0, "mixture": 3.0, "logistic": 1.0, "trees": 0.5}
UNSELECTED_CONFIDENCE = 0.6  # mean confidence of every member without hidden labels; see `confidence_exponent`
# Prior modes of the members' exponents.
MEMBER_SHARPNESS = {"game": 1.5, "poisson": 1.5, "mixture": 0.7, "logistic": 1.0, "trees": 1.5}
WRONG_TOOL_GAP = 0.05  # by which a classifier has to be more accurate on hidden labels than all graphs
PRIOR_ITERATIONS = 50


@dataclass(frozen=True)
class Member:
    """A member of the fitted ensemble.

    Attributes:
        name: method, features and neighbours.
        has_graph: whether it is a method on a graph.
        weight: its weight, in [0, 1].
        hidden_accuracy: its accuracy on the hidden labels; None if none were hidden.
    """

    name: str
    has_graph: bool
    weight: float
    hidden_accuracy: float | None


class AutoTransduction(ClassifierMixin, BaseEstimator):
    """Transductive classifier that combines several methods, weighted by how well they predict hidden labels.

    Members are the game on several graphs (views of the features, numbers of neighbours), mixtures of Gaussians of
    labelled and unlabelled points, logistic regression and, for tables, randomised trees. Some of the given labels are
    hidden in turn. The weights are those of the mixture of members that makes the hidden labels most probable, and an
    exponent of the mixture is chosen in the same way, which calibrates the confidence. If every class has a single
    label, no label can be hidden: the weights are fixed, and `confidence_is_checked_` is False.

    Args:
        n_folds: number of times that labels are hidden; each label of a class with two or more is hidden once.
        classes: all classes, if some may have no label.
        class_priors: class frequencies, or "empirical" for those of the given labels; see `GraphTransduction`.
        device: "auto", "cpu", "cuda"...
        random_state: seed of the folds, of the subset and of the trees.

    Attributes:
        classes_: the classes, shape (m,).
        transduction_: label of each point, shape (n,); -1 ("" for text labels) where it is undecided.
        label_distributions_: distribution of each point, shape (n, m), one-hot where labelled.
        confidence_: confidence of each label, in [0, 1], shape (n,). For given labels, the probability of the label
            when it was hidden.
        confidence_is_checked_: whether enough labels were hidden to rely on the confidences.
        hidden_accuracy_: accuracy on the hidden labels, with its standard error; None if none were hidden.
        members_: the members, largest weight first.
        notes_: remarks for the user, one line each: whether a graph suits the data, whether confidences are checked.
        labelled_mask_: mask of the labelled points, shape (n,).
        unreached_: indices of the points for which no member has an answer.
        undecided_: indices of the points without a label: the unreached ones and ties.
        graph_: the graph of the method with the largest weight among those on a graph, shape (n, n), CSR.
        n_iter_, consistency_: see `GraphTransduction`, of the game on this graph.

    Examples:
        >>> import numpy as np
        >>> from entourage.label import AutoTransduction
        >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> AutoTransduction().fit(X, [0, -1, -1, -1, -1, 1]).transduction_.tolist()
        [0, 0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        *,
        n_folds: int = 5,
        classes: ArrayLike | None = None,
        class_priors: ArrayLike | Literal["empirical"] | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.n_folds = n_folds
        self.classes = classes
        self.class_priors = class_priors
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, prior: ArrayLike | None = None) -> Self:
        """Label all points.

        Args:
            X: features, shape (n, d): an array, a sparse matrix, or a data frame, whose columns of text or categories
                become indicators and whose missing values are filled. A list or tuple of such features combines
                several feature sets of the same points.
            y: labels, shape (n,), -1 or NaN where unlabelled ("" or None are also accepted among text labels).
            prior: prior distribution of each point, shape (n, m), columns in the order of `classes_`, 0 for excluded
                labels; uniform by default.

        Returns:
            The fitted estimator. Costs `n_folds` + 1 times the game on each of a few graphs; with more than 10,000
            points, all but the last on a subset.

        Raises:
            ValueError: the data, labels or priors are invalid or do not match.
        """
        if self.n_folds < 2:
            raise ValueError(f"n_folds is {self.n_folds}; expected 2 or more")
        self._sets = [FeatureViews(features) for features in _as_sets(X)]
        views: Views = [one.matrices for one in self._sets]
        n = _check_lengths(views, y)
        targets = read_targets(np.asarray(fill_missing_labels(y)), self.classes)
        initial = initial_distributions(targets, prior).astype(np.float64)
        self._targets, self.classes_, self.labelled_mask_ = targets, targets.classes, targets.labelled
        self.n_features_in_ = self._sets[0].n_columns
        factors = None if prior is None else initial * len(targets.classes)
        device = resolve_device(self.device)
        specs, hidden = self._select(views, targets, factors, device)
        graphs, class_priors = Graphs(views, device), self._resolve_class_priors(targets)
        self._fitted = self._fit_members(specs, graphs, None if prior is None else initial, class_priors)
        self._finish(specs, initial, hidden, class_priors, n)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Compute class probabilities of new points.

        Args:
            X: features, shape (q, d), or a list of feature sets, as in `fit`.

        Returns:
            Distributions, shape (q, m); uniform for a point without any answer.
        """
        check_is_fitted(self)
        sets = _as_sets(X)
        if len(sets) != len(self._sets):
            raise ValueError(f"X has {len(sets)} feature sets; expected {len(self._sets)}")
        views: Views = [fitted.transform(features) for fitted, features in zip(self._sets, sets, strict=True)]
        x = self._mix([member.predict(views) for member in self._fitted])
        seen = self._targets.seen
        return to_distributions(x, seen / seen.sum())

    def predict(self, X: Any) -> NDArray[np.generic]:
        """Predict labels of new points, shape (q,); -1 ("" for text labels) where several labels tie."""
        x = self.predict_proba(X)
        return self._targets.decode(np.where(has_unique_maximum(x), x.argmax(axis=1), -1))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the accuracy on the labelled points of y; undecided points count as wrong."""
        return labelled_accuracy(self.predict(X), y, sample_weight)

    def _select(
        self, views: Views, targets: Targets, factors: Floats | None, device: torch.device
    ) -> tuple[list[MemberSpec], dict[int, Floats]]:
        """Choose members, weights and exponent by hidden labels; return the members and the hidden distributions."""
        n, codes = len(targets.codes), targets.codes
        chosen = self._subset(codes)
        part = targets if chosen is None else replace(targets, codes=codes[chosen])
        folds = hidden_folds(part.codes, self.n_folds, self.random_state)
        with_hidden = sum(map(len, folds)) >= MIN_HIDDEN
        columns = [0 if one.is_sparse else one.n_columns for one in self._sets]
        specs = list_members([list(view) for view in views], columns, n, with_hidden=with_hidden)
        if int(targets.seen.sum()) < 2:
            specs = [spec for spec in specs if spec.has_graph]
        self.hidden_accuracy_: tuple[float, float] | None = None
        self._sharpness = 1.0
        self.confidence_is_checked_ = False
        if not with_hidden:
            prior_weights = np.array([UNSELECTED_WEIGHTS[spec.kind] for spec in specs])
            return self._keep(specs, prior_weights / prior_weights.sum(), [1.0] * len(specs), None), {}
        own = views if chosen is None else [{name: x[chosen] for name, x in one.items()} for one in views]
        graphs = Graphs(own, device)
        rows = np.concatenate(folds)
        found = np.concatenate([self._predict_fold(specs, graphs, part, fold) for fold in folds], axis=1)
        original = rows if chosen is None else chosen[rows]
        if factors is not None:
            found = np.stack([to_distributions(one * factors[original]) for one in found])
        hidden_codes = codes[original]
        exponents = [
            best_sharpness(one, hidden_codes, MEMBER_SHARPNESS[spec.kind])
            for one, spec in zip(found, specs, strict=True)
        ]
        found = np.stack([sharpen(one, exponent) for one, exponent in zip(found, exponents, strict=True)])
        weights = stacking_weights(found, hidden_codes, np.ones(len(specs)))
        accuracy = (found.argmax(axis=2) == hidden_codes).mean(axis=1)
        mixed = mix(list(found), weights.tolist())
        self._sharpness = best_sharpness(mixed, hidden_codes)
        own_accuracy = float((mixed.argmax(axis=1) == hidden_codes).mean())
        # If every hidden label is right, the standard error would be 0: half an error is added.
        cautious = (own_accuracy * len(rows) + 0.5) / (len(rows) + 1)
        error = standard_error(cautious, len(rows))
        self.hidden_accuracy_ = (own_accuracy, error)
        self.confidence_is_checked_ = error <= MAX_STANDARD_ERROR
        hidden = dict(zip(original.tolist(), sharpen(mixed, self._sharpness), strict=True))
        return self._keep(specs, weights, exponents, accuracy), hidden

    def _predict_fold(
        self, specs: Sequence[MemberSpec], graphs: Graphs, targets: Targets, fold: NDArray[np.int64]
    ) -> Floats:
        """Return the distributions of the labels of a fold, hidden from each member, shape (members, labels, m)."""
        shown = targets.codes.copy()
        shown[fold] = -1
        hidden = replace(targets, codes=shown)
        members = (fit_member(spec, graphs, hidden, random_state=self.random_state) for spec in specs)
        return np.stack([member.distributions[fold] for member in members]).astype(np.float64)

    def _fit_members(
        self, specs: list[MemberSpec], graphs: Graphs, prior: Floats | None, class_priors: Floats | None
    ) -> list[FittedMember]:
        """Fit all members; without hidden labels, mixtures start from the mean of the others and exponents are set."""
        fitted: dict[int, FittedMember] = {}
        start: Floats | None = None
        for i in sorted(range(len(specs)), key=lambda i: specs[i].kind == "mixture"):
            if self.hidden_accuracy_ is None and specs[i].kind == "mixture" and start is None:
                weights = [self._weights[j] for j in fitted]
                start = mix([sharpen(fitted[j].distributions, self._exponents[j]) for j in fitted], weights)
            options: dict[str, Any] = {"class_priors": class_priors, "random_state": self.random_state}
            fitted[i] = fit_member(specs[i], graphs, self._targets, prior=prior, start=start, **options)
            if self.hidden_accuracy_ is None:
                self._exponents[i] = confidence_exponent(fitted[i].distributions, UNSELECTED_CONFIDENCE)
        return [fitted[i] for i in range(len(specs))]

    def _subset(self, codes: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the indices of the points among which labels are hidden, or None for all."""
        if len(codes) <= MAX_SELECTION:
            return None
        rng = np.random.default_rng(self.random_state)
        labelled = rng.permutation(np.flatnonzero(codes >= 0))[: MAX_SELECTION // 2]
        others = rng.permutation(np.flatnonzero(codes < 0))[: MAX_SELECTION - len(labelled)]
        return np.sort(np.concatenate([labelled, others]))

    def _keep(
        self, specs: list[MemberSpec], weights: Floats, exponents: list[float], accuracy: Floats | None
    ) -> list[MemberSpec]:
        """Store the members with more than the smallest weight, and at least one on a graph; return them."""
        best_graph = max((i for i, spec in enumerate(specs) if spec.has_graph), key=lambda i: weights[i])
        kept = [i for i in np.argsort(-weights).tolist() if weights[i] >= MIN_WEIGHT or i == best_graph]
        total = float(weights[kept].sum())
        self._weights = [float(weights[i]) / total for i in kept]
        self._exponents = [exponents[i] for i in kept]
        self.members_ = [
            Member(specs[i].name, specs[i].has_graph, weight, None if accuracy is None else float(accuracy[i]))
            for i, weight in zip(kept, self._weights, strict=True)
        ]
        self.notes_ = [] if accuracy is None else _wrong_tool(specs, accuracy, self.hidden_accuracy_)
        return [specs[i] for i in kept]

    def _finish(
        self,
        specs: list[MemberSpec],
        initial: Floats,
        hidden: dict[int, Floats],
        class_priors: Floats | None,
        n: int,
    ) -> None:
        """Combine the members and set the fitted attributes."""
        graph_members = [member for member in self._fitted if isinstance(member, GraphMember)]
        x = self._mix([member.distributions for member in self._fitted])
        reached = x.sum(axis=1) > 0
        if class_priors is not None:
            x = _match(x, class_priors)
        codes = self._targets.codes
        labelled = np.flatnonzero(self.labelled_mask_)
        # A label that was not hidden is compared with its neighbourhood.
        around = mix([m.distributions for m in graph_members], [1.0] * len(graph_members))
        given = np.array([hidden.get(i, around[i])[codes[i]] for i in labelled.tolist()])
        x = np.where(reached[:, None], x, initial)
        x[labelled] = initial[labelled]
        decided = self.labelled_mask_ | (reached & has_unique_maximum(x[:, self._targets.seen]))
        self.label_distributions_ = x
        self.unreached_ = np.flatnonzero(~reached & ~self.labelled_mask_)
        self.undecided_ = np.flatnonzero(~decided)
        best = x.argmax(axis=1)
        self.transduction_ = self._targets.decode(np.where(decided, best, -1))
        confidence = np.where(decided, x[np.arange(n), best], 0)
        confidence[labelled] = given
        self.confidence_ = confidence.clip(0, 1)
        games = [member.model for member in graph_members if isinstance(member.model, GraphTransduction)]
        self.graph_: sparse.csr_matrix = graph_members[0].model.graph_
        self.n_iter_ = games[0].n_iter_ if games else 0
        self.consistency_ = games[0].consistency_ if games else np.zeros(1)
        if not self.confidence_is_checked_:
            self.notes_.append(self._unchecked_note())
        if len(self.unreached_):
            warnings.warn(f"no label reaches {len(self.unreached_)} of {n} points: they stay undecided", stacklevel=3)
        if (tied := len(self.undecided_) - len(self.unreached_)) > 0:
            warnings.warn(f"{tied} of {n} points end in a tie: they stay undecided", stacklevel=3)

    def _mix(self, distributions: Sequence[Floats]) -> Floats:
        """Combine the distributions of the members, shape (n, m); rows are 0 where no member has an answer."""
        sharpened = [sharpen(x, exponent) for x, exponent in zip(distributions, self._exponents, strict=True)]
        return sharpen(mix(sharpened, self._weights), self._sharpness)

    def _unchecked_note(self) -> str:
        if self.hidden_accuracy_ is None:
            return "the confidences are not checked: no label can be hidden, as most classes have one label"
        accuracy, error = self.hidden_accuracy_
        return f"the confidences are not reliable: the accuracy on hidden labels is {accuracy:.0%} +- {error:.0%}"

    def _resolve_class_priors(self, targets: Targets) -> Floats | None:
        if self.class_priors is None:
            return None
        if isinstance(self.class_priors, str):
            if self.class_priors != "empirical":
                raise ValueError(f"class_priors is {self.class_priors!r}; expected 'empirical', an array, or None")
            counts = np.bincount(targets.codes[targets.labelled], minlength=len(targets.classes))
            return np.asarray(counts / counts.sum())
        return np.asarray(self.class_priors, dtype=np.float64)


def _as_sets(X: Any) -> Sequence[Any]:
    """Return the feature sets: the members of a list or tuple of arrays, or X alone."""
    if isinstance(X, (list, tuple)) and len(X) and all(np.ndim(one) == 2 or sparse.issparse(one) for one in X):
        return X
    return [X if sparse.issparse(X) or hasattr(X, "iloc") else np.asarray(X)]


def _check_lengths(views: Views, y: ArrayLike) -> int:
    lengths = {next(iter(one.values())).shape[0] for one in views}
    if len(lengths) > 1:
        raise ValueError(f"X has feature sets of {', '.join(map(str, sorted(lengths)))} points; expected equal numbers")
    n = int(lengths.pop())
    if np.shape(y) != (n,):
        raise ValueError(f"y has shape {np.shape(y)}; expected ({n},), one label per point")
    return n


def _wrong_tool(specs: list[MemberSpec], accuracy: Floats, hidden_accuracy: tuple[float, float] | None) -> list[str]:
    """Return a remark if a classifier is clearly more accurate on hidden labels than every method on a graph."""
    graph = max((float(a) for spec, a in zip(specs, accuracy, strict=True) if spec.has_graph), default=0.0)
    plain = [(float(a), spec.name) for spec, a in zip(specs, accuracy, strict=True) if not spec.has_graph]
    if not plain or hidden_accuracy is None:
        return []
    best, name = max(plain)
    if best - graph < max(WRONG_TOOL_GAP, hidden_accuracy[1]):
        return []
    found = f"of the hidden labels {name} finds {best:.0%}, a graph {graph:.0%}"
    return [f"a graph is the wrong tool for these features: {found}"]


def _match(x: Floats, class_priors: Floats) -> Floats:
    """Scale the classes until their mean probabilities are the priors, as far as PRIOR_ITERATIONS move them."""
    priors = torch.from_numpy(class_priors)
    for _ in range(PRIOR_ITERATIONS):
        factors = match_class_priors(torch.from_numpy(x), priors).numpy()
        x = to_distributions(x * factors)
    return x
