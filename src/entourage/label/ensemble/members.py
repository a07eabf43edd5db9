"""Members of `AutoTransduction`: methods on several graphs, mixtures of Gaussians, and classifiers without a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from entourage.game.graph import NeighborGraph, default_n_neighbors
from entourage.label.base import GraphLabeller, as_tensor, to_distributions
from entourage.label.baselines import PoissonLearning
from entourage.label.ensemble.mixture import fit_mixture
from entourage.label.ensemble.stacking import confidence_exponent, sharpen
from entourage.label.targets import Floats, Targets, ignore_class_count_warning
from entourage.label.transduction import GraphTransduction, random_walk_step

MANY_NEIGHBORS = 30  # of the second graph of each view, which reaches farther
MAX_TREE_COLUMNS = 100  # trees on more columns than these are worse than the other members
N_TREES = 100
SHRINKAGES = (0.2, 0.5)  # of the covariances of mixtures
START_CONFIDENCE = 0.6  # of the distributions from which a mixture is fitted: 0 if they are uniform, 1 if one-hot
Views = Sequence[dict[str, Any]]  # view by name, for each feature set


@dataclass(frozen=True)
class MemberSpec:
    """Specification of a member: method, features and number of neighbours.

    Attributes:
        kind: "game", "poisson", "mixture", "logistic" or "trees".
        views: feature set (its index) and name of each view; the graph of several views is the mean of their graphs.
        n_neighbors: neighbours of a graph; None for "auto" and for members without a graph.
        shrinkage: of the covariance of a mixture.
    """

    kind: str
    views: tuple[tuple[int, str], ...]
    n_neighbors: int | None = None
    shrinkage: float | None = None

    @property
    def has_graph(self) -> bool:
        """Whether the member is a method on a graph."""
        return self.kind in ("game", "poisson")

    @property
    def name(self) -> str:
        """Description for users."""
        what = {"game": "game", "poisson": "Poisson learning", "mixture": "Gaussian mixture"}
        what |= {"logistic": "logistic regression", "trees": "trees"}
        sets = "all feature sets" if len(self.views) > 1 else f"{self.views[0][1]} columns"
        number = f", set {self.views[0][0] + 1}" if len(self.views) == 1 and self.views[0][0] else ""
        neighbors = "" if self.n_neighbors is None else f", {self.n_neighbors} neighbours"
        shrinkage = "" if self.shrinkage is None else f", shrinkage {self.shrinkage}"
        return f"{what[self.kind]}, {sets}{number}{neighbors}{shrinkage}"


def list_members(
    names: Sequence[Sequence[str]], columns: Sequence[int], n: int, *, with_hidden: bool
) -> list[MemberSpec]:
    """List the members for some feature sets.

    Args:
        names: names of the views of each set.
        columns: number of columns of each set; 0 if it is sparse.
        n: number of points.
        with_hidden: whether labels can be hidden to weight the members. If not, Poisson learning is added, and the view
            "rank" of a set with three views is omitted.
    """
    specs: list[MemberSpec] = []
    for index, views in enumerate(names):
        chosen = list(views) if with_hidden or len(views) < 3 else [view for view in views if view != "rank"]
        for view in chosen:
            one = ((index, view),)
            specs.append(MemberSpec("game", one))
            if view != "rank" and n > 3 * MANY_NEIGHBORS:
                specs.append(MemberSpec("game", one, MANY_NEIGHBORS))
            if not with_hidden:
                specs.append(MemberSpec("poisson", one))
            specs.append(MemberSpec("logistic", one))
        if columns[index]:  # not sparse
            scaled = [view for view in views if view != "given"] or views
            specs += [MemberSpec("mixture", ((index, view),), None, s) for view in scaled for s in SHRINKAGES]
        if 0 < columns[index] <= MAX_TREE_COLUMNS and "standard" in chosen:
            specs.append(MemberSpec("trees", ((index, "standard"),)))
    if len(names) > 1:
        specs.append(MemberSpec("game", tuple((index, views[0]) for index, views in enumerate(names))))
    return specs


class FittedMember(Protocol):
    """A member fitted to labels."""

    distributions: Floats
    """Distribution of each point, shape (n, m); zeros where the member has no answer."""

    def predict(self, views: Views) -> Floats:
        """Return distributions of new points, shape (q, m); zeros where the member has no answer."""
        ...


@dataclass
class Graphs:
    """The graphs of a set of points, each built at its first use.

    Args:
        views: views of the points.
        device: device of the neighbour search.
    """

    views: Views
    device: torch.device
    _graphs: dict[tuple[int, str, int | None], NeighborGraph] = field(default_factory=dict)
    _means: dict[MemberSpec, sparse.csr_matrix] = field(default_factory=dict)

    def neighbor_graphs(self, spec: MemberSpec) -> Iterator[NeighborGraph]:
        """Yield the graph of each view of a member."""
        for index, view in spec.views:
            key = (index, view, spec.n_neighbors)
            if key not in self._graphs:
                points = self.views[index][view]
                if isinstance(points, np.ndarray):
                    points = as_tensor(np.ascontiguousarray(points)).to(self.device)
                k = default_n_neighbors(points.shape[0]) if spec.n_neighbors is None else spec.n_neighbors
                self._graphs[key] = NeighborGraph(points, k)
            yield self._graphs[key]

    def weights(self, spec: MemberSpec) -> sparse.csr_matrix:
        """Return the graph of a member, shape (n, n): the mean of the graphs of its views."""
        graphs = [graph.w for graph in self.neighbor_graphs(spec)]
        if len(graphs) == 1:
            return graphs[0]
        if spec not in self._means:
            mean = sparse.csr_matrix(sum(graphs[1:], start=graphs[0]))
            mean.data = mean.data / np.float32(len(graphs))
            self._means[spec] = mean
        return self._means[spec]


class GraphMember:
    """A method on a graph, fitted to labels.

    Args:
        spec: the member.
        graphs: graphs of the points.
        targets: the labels.
        prior: prior distributions, shape (n, m), or None.
        class_priors: see `GraphTransduction`.
    """

    def __init__(
        self, spec: MemberSpec, graphs: Graphs, targets: Targets, prior: Floats | None, class_priors: Floats | None
    ) -> None:
        self.graphs = list(graphs.neighbor_graphs(spec))
        self.views = spec.views
        options: dict[str, Any] = {"affinity": "precomputed", "classes": targets.classes, "device": str(graphs.device)}
        self.model: GraphLabeller
        if spec.kind == "game":
            self.model = GraphTransduction(**options, class_priors=class_priors)
        else:
            self.model = PoissonLearning(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = targets.decode(targets.codes)
            self.model.fit_graph(graphs.weights(spec), labels, prior)
        # The game's final distributions are nearly one-hot; those of two steps of a random walk are calibrated better.
        x = self.model.label_distributions_
        if spec.kind == "game":
            x = random_walk_step(self.model.graph_, self.model._vote_weights)
        x = to_distributions(np.asarray(x, dtype=np.float64))
        x[self.model.unreached_] = 0
        self.distributions: Floats = x

    def predict(self, views: Views) -> Floats:
        """Return distributions of new points, shape (q, m); zeros where no label reaches their neighbours."""
        votes: Any = 0
        for (index, view), graph in zip(self.views, self.graphs, strict=True):
            points = views[index][view]
            if isinstance(points, np.ndarray):
                points = as_tensor(np.ascontiguousarray(points))
            votes = votes + np.asarray(graph.weights_to(points) @ self.model._vote_weights, dtype=np.float64)
        return to_distributions(votes)


class MixtureMember:
    """A Gaussian mixture of labelled and unlabelled points.

    Args:
        spec: the member.
        graphs: graphs of the points.
        targets: the labels.
        prior: prior distributions, shape (n, m), which multiply those of the mixture, or None.
        start: distributions from which it is fitted, shape (n, m); None for those of Poisson learning on its features.
    """

    def __init__(
        self, spec: MemberSpec, graphs: Graphs, targets: Targets, prior: Floats | None, start: Floats | None
    ) -> None:
        ((self._set, self._view),) = spec.views
        assert spec.shrinkage is not None
        if start is None:
            start = GraphMember(MemberSpec("poisson", spec.views), graphs, targets, prior, None).distributions
            start = sharpen(start, confidence_exponent(start, START_CONFIDENCE))
        features = graphs.views[self._set][self._view]
        self._mixture = fit_mixture(features, start, targets.codes, spec.shrinkage)
        x = self.predict(graphs.views)
        self.distributions: Floats = x if prior is None else to_distributions(x * prior)

    def predict(self, views: Views) -> Floats:
        """Return distributions of new points, shape (q, m)."""
        return self._mixture.predict_proba(views[self._set][self._view])


class ClassifierMember:
    """A classifier of features, without a graph, trained on the labelled points.

    Args:
        spec: the member.
        views: views of the points.
        targets: the labels, of two classes or more.
        prior: prior distributions, shape (n, m), which multiply those of the classifier, or None.
        random_state: seed of the trees.
    """

    def __init__(
        self, spec: MemberSpec, views: Views, targets: Targets, prior: Floats | None, random_state: int
    ) -> None:
        ((self._set, self._view),) = spec.views
        estimator: Any = LogisticRegression(max_iter=300)
        if spec.kind == "trees":
            estimator = ExtraTreesClassifier(N_TREES, random_state=random_state)
        labelled, n_classes = targets.labelled, len(targets.classes)
        features = views[self._set][self._view]
        with warnings.catch_warnings(), ignore_class_count_warning():
            warnings.simplefilter("ignore")
            self._estimator = clone(estimator).fit(features[labelled], targets.codes[labelled])
        self._n_classes = n_classes
        x = self.predict(views)
        self.distributions: Floats = x if prior is None else to_distributions(x * prior)

    def predict(self, views: Views) -> Floats:
        """Return distributions of new points, shape (q, m)."""
        features = views[self._set][self._view]
        x = np.zeros((features.shape[0], self._n_classes))
        x[:, self._estimator.classes_] = self._estimator.predict_proba(features)
        return x


def fit_member(
    spec: MemberSpec,
    graphs: Graphs,
    targets: Targets,
    *,
    prior: Floats | None = None,
    class_priors: Floats | None = None,
    random_state: int = 0,
    start: Floats | None = None,
) -> FittedMember:
    """Fit a member to labels; see `GraphMember`, `MixtureMember` and `ClassifierMember`."""
    if spec.has_graph:
        return GraphMember(spec, graphs, targets, prior, class_priors)
    if spec.kind == "mixture":
        return MixtureMember(spec, graphs, targets, prior, start)
    return ClassifierMember(spec, graphs.views, targets, prior, random_state)


def mix(members: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """Average distributions, shape (n, m); members with a row of zeros are left out of that row's average."""
    total: Any = 0
    for x, weight in zip(members, weights, strict=True):
        total = total + weight * x
    return to_distributions(total)


def hidden_folds(codes: NDArray[np.int64], n_folds: int, random_state: int) -> list[NDArray[np.int64]]:
    """Split the labels of classes with two or more into folds of indices, each with labels of all of these classes.

    Args:
        codes: class of each point, shape (n,), -1 where unlabelled.
        n_folds: maximum number of folds.
        random_state: seed of the split.

    Returns:
        Indices of the labels to hide together; no folds if every class has one label.
    """
    rng = np.random.default_rng(random_state)
    counts = np.bincount(codes[codes >= 0], minlength=1)
    n_folds = min(n_folds, int(counts.max(initial=0)))
    fold = np.full(len(codes), -1)
    for code in np.flatnonzero(counts >= 2):
        members = rng.permutation(np.flatnonzero(codes == code))
        # Small classes begin with different folds, so that all folds have the same size.
        fold[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    return [indices for f in range(n_folds) if len(indices := np.flatnonzero(fold == f))]
