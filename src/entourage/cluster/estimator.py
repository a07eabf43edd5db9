"""`LearnedClustering`, a scikit-learn clusterer with trained networks, and the function that trains further ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from entourage.cluster.items import validate_items
from entourage.cluster.large_scale import Floats, Partition, cluster_in_subsets
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.embedding import standardize
from entourage.cluster.models.network import ClusterNetwork, find_weights, init_network, load_network
from entourage.cluster.models.options import Metric, preset
from entourage.cluster.sampling.episodes import EpisodeSampler
from entourage.cluster.tables.clustering import cluster_table, nearest_average, shipped_scorer
from entourage.cluster.task import ClusterTask, Recipe, default_recipe, resolve_model_options, train_network
from entourage.compute import resolve_device
from entourage.training.checkpoint import TrainingResult
from entourage.validation import is_integer

DEFAULT_SET_SIZE = 1000  # for networks whose file does not state the set size of their training
TABLES = "tables"
Labels = NDArray[np.int64]


class LearnedClustering(ClusterMixin, BaseEstimator):
    """Cluster items by what a network has learned from examples, and estimate the number of clusters.

    The default network is for tables of any width. It scores partitions that linkage, mixture, density and spectral
    methods propose for all numbers of clusters. Networks for points, images and sounds compute the clusters
    themselves (thesis, appendix A).

    Args:
        model: "tables"; "points", for two columns of the same unit; a file of `entourage cluster train`; or a network.
        n_clusters: number of clusters, if known; None to estimate it.
        k_max: maximum number of clusters; None for 50, or that of the network's training.
        set_size: number of items that are processed together; None for 1,200, or that of the network's training.
            Further rows of a table get the cluster of their nearest neighbours among them; for other networks, see
            `cluster.large_scale`. Time and memory grow with set_size^2.
        noise: whether items far from all others get the label -1 (tables only).
        device: "auto", "cpu", "cuda", ... Tables are clustered on the CPU.
        random_state: seed for the items that are processed together; None for a different draw at each call.

    Attributes:
        labels_: cluster of each item, shape (n,); cluster 0 is the largest.
        n_clusters_: number of clusters.
        probabilities_: P(l | x_i, k) for k = n_clusters_, shape (n, n_clusters_); its largest value in a row is the
            confidence of the item's label.
        count_probabilities_: P(k) for k = 1, 2, ..., shape (k_max,). The number of clusters with the best expected
            partition, n_clusters_, need not be the most probable one.
        n_subsets_: number of sets that the items were divided into; 1 for tables.
        n_features_in_: number of columns; not set for images and sounds.

    Examples:
        >>> from sklearn.datasets import load_wine
        >>> from entourage import LearnedClustering
        >>> clustering = LearnedClustering().fit(load_wine().data)
        >>> clustering.n_clusters_
        3
    """

    def __init__(
        self,
        model: str | Path | ClusterNetwork = TABLES,
        *,
        n_clusters: int | None = None,
        k_max: int | None = None,
        set_size: int | None = None,
        noise: bool = False,
        device: str = "auto",
        random_state: int | None = 0,
    ) -> None:
        self.model = model
        self.n_clusters = n_clusters
        self.k_max = k_max
        self.set_size = set_size
        self.noise = noise
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike | Tensor, y: object = None) -> Self:
        """Cluster items.

        Args:
            X: items, shape (n, columns) or (n, channels, height, width), n >= 2, finite.
            y: ignored.

        Returns:
            The clusterer itself.

        Raises:
            ValueError: an argument is out of range, the network does not exist, or the items are invalid.
        """
        check_parameters(self)
        if isinstance(self.model, str) and self.model == TABLES:
            self._fit_table(X)
        else:
            self._fit_items(X)
        return self

    def fit_predict(self, X: ArrayLike | Tensor, y: object = None) -> Labels:
        """Cluster items and return `labels_`."""
        return self.fit(X).labels_

    def predict(self, X: ArrayLike | Tensor) -> Labels:
        """Return the cluster of new items: that of their nearest neighbours among the items of `fit`.

        Args:
            X: items, as for `fit`; a single one is sufficient.

        Returns:
            Clusters, shape (n,).
        """
        labels = self.predict_proba(X).argmax(1)
        return self._mark_noise(self._validate_rows(X), labels) if self.noise and self._is_table() else labels

    def predict_proba(self, X: ArrayLike | Tensor) -> Floats:
        """Return the probabilities of the clusters for new items, shape (n, n_clusters_); rows sum to 1."""
        check_is_fitted(self)
        if self._is_table():
            probabilities = self._table.extend(self._validate_rows(X), self._table.subset_probabilities(self._k))
            return np.asarray(probabilities[:, self._order])
        items = validate_items(X, self.network_.shape, self._dtype(), minimum=1)
        return nearest_average(self._embed(items), self._embed(self._items), self.probabilities_)

    def labels_for(self, k: int) -> Labels:
        """Return the best partition of the items of `fit` into k clusters.

        Args:
            k: number of clusters, 1 or more.

        Returns:
            Clusters, shape (n,), the largest first. Numbers above those considered in `fit` are computed again.

        Raises:
            ValueError: k is out of range.
        """
        check_is_fitted(self)
        if not is_integer(k) or k < 1:
            raise ValueError(f"k is {k!r}; expected an integer, 1 or more")
        if not self._is_table():
            return _order_by_size(self._cluster_items(self._items, int(k)).probabilities)[0]
        if all(candidate.k != k for candidate in self._table.candidates):
            other = cluster_table(self._rows, self._scorer(), **self._table_options() | {"n_clusters": int(k)})
        else:
            other = self._table
        return _order_by_size(other.extend(self._rows, other.subset_probabilities(int(k))))[0]

    def _fit_table(self, X: ArrayLike | Tensor) -> None:
        self._rows = self._validate_rows(X, reset=True)
        limit = self.n_clusters
        if limit is not None and limit > len(self._rows):
            raise ValueError(f"n_clusters is {limit}; expected at most {len(self._rows)}, the number of items")
        self._table = cluster_table(self._rows, self._scorer(), **self._table_options())
        possible = {candidate.k for candidate in self._table.candidates}
        k = self.n_clusters if self.n_clusters in possible or self.n_clusters is None else max(possible)
        self._k = self._table.candidates[self._table.best(k)].k
        self.count_probabilities_, self.n_subsets_ = self._table.count, 1
        probabilities = self._table.extend(self._rows, self._table.subset_probabilities(self._k))
        labels, self.probabilities_, self._order = _order_by_size(probabilities)
        self.n_clusters_ = self.probabilities_.shape[1]
        self.labels_ = self._mark_noise(self._rows, labels) if self.noise else labels
        self._warn_about_limits(len(self.count_probabilities_), len(self._rows), any_k=True)

    def _table_options(self) -> dict[str, Any]:
        return {
            "n_clusters": self.n_clusters,
            "k_max": self.k_max,
            "subset_size": self.set_size,
            "random_state": self.random_state,
        }

    @staticmethod
    def _scorer() -> Any:
        return shipped_scorer(find_weights(TABLES))

    def _is_table(self) -> bool:
        return hasattr(self, "_table")

    def _validate_rows(self, X: ArrayLike | Tensor, *, reset: bool = False) -> Floats:
        """Validate a table as all estimators of scikit-learn do."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        minimum = 2 if reset else 1
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=reset, ensure_min_samples=minimum))

    def _mark_noise(self, X: Floats, labels: Labels) -> Labels:
        number = np.empty(len(self._order), dtype=np.int64)
        number[:] = self._order
        return np.where(self._table.is_noise(X, number[labels], self._k), -1, labels)

    def _fit_items(self, X: ArrayLike | Tensor) -> None:
        if self.noise:
            raise ValueError("noise is True; expected False, as only the model 'tables' marks noise")
        self.__dict__.pop("_table", None)
        model = self.model
        self.network_ = model if isinstance(model, ClusterNetwork) else load_network(find_weights(model))
        self._items = validate_items(X, self.network_.shape, self._dtype())
        if len(self.network_.shape) == 1:
            self.n_features_in_ = self.network_.shape[0]
        partition = self._cluster_items(self._items, self.n_clusters)
        self.count_probabilities_, self.n_subsets_ = partition.count, partition.n_subsets
        self.labels_, self.probabilities_, _ = _order_by_size(partition.probabilities)
        self.n_clusters_ = self.probabilities_.shape[1]
        k_max = self._resolve_k_max(self.network_, len(self._items), self.n_clusters)
        self._warn_about_limits(k_max, len(self._items), any_k=_supports_any_k(self.network_))

    def _cluster_items(self, items: Tensor, k: int | None) -> Partition:
        """Cluster items with the network, in subsets if they are many."""
        network = self.network_
        standard = len(network.shape) == 1 and network.options.standardise
        device = resolve_device(self.device)
        network.to(device).eval()
        k_max = self._resolve_k_max(network, len(items), k)

        @torch.inference_mode()
        def predict_subset(rows: NDArray[np.int64]) -> SetPrediction:
            subset = items[torch.from_numpy(rows)].unsqueeze(0)  # (1, m, *shape)
            # On the CPU: a distant origin requires double precision, which some devices lack.
            x = standardize(subset).float() if standard else subset
            prediction: SetPrediction = network(x.to(device), k_max)
            return prediction

        rng = np.random.default_rng(self.random_state)
        set_size = _resolve_set_size(self.set_size, network, len(items))
        return cluster_in_subsets(predict_subset, len(items), set_size, rng, k)

    def _dtype(self) -> torch.dtype:
        network = self.network_
        return torch.float64 if len(network.shape) == 1 and network.options.standardise else torch.float32

    @torch.inference_mode()
    def _embed(self, items: Tensor) -> Floats:
        """Return vectors of the items in which neighbours are searched, shape (n, width)."""
        if len(self.network_.shape) == 1:
            return items.double().numpy()
        device = next(self.network_.parameters()).device
        parts = [self.network_.embedding(part.unsqueeze(0).to(device))[0].cpu() for part in torch.split(items, 256)]
        return torch.cat(parts).double().numpy()

    def _warn_about_limits(self, k_max: int, n: int, *, any_k: bool) -> None:
        """Warn if fewer clusters have members than requested, or if the estimated number is the largest considered."""
        most_likely = int(self.count_probabilities_.argmax()) + 1
        expected = self.n_clusters or (0 if self._is_table() else most_likely)
        if self.n_clusters_ < expected:
            origin = "were requested" if self.n_clusters else "are most probable"
            message = f"{expected} clusters {origin}, but only {self.n_clusters_} have members"
            warnings.warn(message, stacklevel=4)
        if self.n_clusters is None and k_max < n and most_likely == k_max and k_max > 1:
            more = "increase k_max (--max-clusters)" if any_k else "this network does not support more"
            message = f"the most probable number of clusters is {k_max}, the largest considered"
            warnings.warn(f"{message}; there may be more: {more}", stacklevel=4)

    def _resolve_k_max(self, network: ClusterNetwork, n: int, k: int | None) -> int:
        """Return the maximum number of clusters; raise ValueError if k exceeds the network or n."""
        k_max = self.k_max or network.options.k_max
        if k is None:
            return k_max
        max_value = n if _supports_any_k(network) else min(k_max, n)
        if k > max_value:
            limit = "the number of items" if max_value == n else "the maximum of this network"
            raise ValueError(f"n_clusters: {k} clusters requested; expected 1 to {max_value}, {limit}")
        return max(k_max, k)


def train_clustering(
    sampler: EpisodeSampler,
    name: str = "default",
    *,
    k_max: int | None = None,
    metric: Metric = "none",
    recipe: Recipe | None = None,
    validation: EpisodeSampler | None = None,
    run_dir: str | Path | None = None,
    minutes: float | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[ClusterNetwork, TrainingResult]:
    """Train a network on sets with known clusters, for `LearnedClustering(network)`.

    Args:
        sampler: sampler of training episodes, e.g. a `LabelledSampler`.
        name: preset of network and loss: "default", "thesis" or "original".
        k_max: maximum number of clusters; None for that of the sampler and the preset.
        metric: optional metric block: "none", "euclidean", "diagonal" or "full".
        recipe: training options; None for those of `entourage cluster train` with this sampler and preset.
        validation: sampler of validation episodes, from other classes; None for `sampler`.
        run_dir: folder for checkpoints; a call with the same folder resumes the training.
        minutes: training time, instead of the recipe's steps.
        device: "auto", "cpu", "cuda", ...
        progress: show progress; None: only on a terminal.

    Returns:
        The network and the result of the training. `save_network` stores it.

    Raises:
        ValueError: `sampler` is not a sampler, or the arguments are not compatible.
    """
    if k_max is not None and not (is_integer(k_max) and k_max >= 1):
        raise ValueError(f"k_max is {k_max!r}; expected an integer, 1 or more, or None")
    if not hasattr(sampler, "draw"):
        kind = type(sampler).__name__
        raise ValueError(f"sampler is of type {kind}; expected a sampler of episodes such as LabelledSampler")
    chosen = preset(name)
    recipe = recipe or default_recipe(sampler, chosen)
    options = resolve_model_options(sampler, chosen, recipe.curriculum, metric=metric, k_max=k_max)
    network = init_network(sampler.shape, options, recipe.seed)
    loss = chosen.loss_for(points=len(sampler.shape) == 1)
    task = ClusterTask(network, sampler, validation or sampler, loss, recipe, notes={"preset": name})
    folder = None if run_dir is None else Path(run_dir)
    return train_network(task, folder, minutes=minutes, device=device, progress=progress)


def _supports_any_k(network: ClusterNetwork) -> bool:
    """Return whether a network supports more clusters than it was trained with."""
    return network.options.network == "attention"


def _resolve_set_size(requested: int | None, network: ClusterNetwork, n: int) -> int:
    """Return the number of items per set; fixed for an LSTM whose inputs are rows of distances."""
    fixed = network.options.set_size
    if fixed is None:
        return requested or int(network.notes.get("set_size", DEFAULT_SET_SIZE))
    if requested not in (None, fixed):
        raise ValueError(f"set_size is {requested}; expected {fixed}, the fixed set size of this network, or None")
    if n < fixed:
        raise ValueError(f"X has {n} items; expected {fixed} or more, the fixed set size of this network")
    return fixed


def check_parameters(clusterer: LearnedClustering) -> None:
    """Raise ValueError if a constructor argument is out of range."""
    for name, min_value in (("k_max", 1), ("n_clusters", 1), ("set_size", 1), ("random_state", 0)):
        value = getattr(clusterer, name)
        if value is not None and not (is_integer(value) and value >= min_value):
            raise ValueError(f"{name} is {value!r}; expected an integer, {min_value} or more, or None")
    requested, max_value = clusterer.n_clusters, clusterer.k_max
    if requested is not None and max_value is not None and requested > max_value:
        raise ValueError(
            f"n_clusters is {requested}; expected {max_value} or less, the value of k_max (--max-clusters)"
        )


def _order_by_size(probabilities: Floats) -> tuple[Labels, Floats, Labels]:
    """Remove empty clusters and sort the others by size; returns labels (n,), probabilities (n, k), order (k,)."""
    labels = probabilities.argmax(1)
    sizes = np.bincount(labels, minlength=probabilities.shape[1])
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    probabilities = probabilities[:, order]
    new_label = np.empty(len(sizes), dtype=np.int64)
    new_label[order] = np.arange(len(order))
    # Labels are mapped, not computed by another argmax: a tie could be resolved differently.
    return new_label[labels], probabilities / probabilities.sum(1, keepdims=True), order
