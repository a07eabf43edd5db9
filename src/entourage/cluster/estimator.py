"""`LearnedClustering`, a scikit-learn clusterer whose similarity is learned from examples, and input validation."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from entourage.cluster.large_scale import Floats, cluster_in_subsets
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.embedding import standardize
from entourage.cluster.models.network import ClusterNetwork, find_weights, init_network, load_network, save_network
from entourage.cluster.models.options import Metric, preset
from entourage.cluster.sampling.episodes import EpisodeSampler
from entourage.cluster.task import ClusterTask, Recipe, default_recipe, resolve_model_options, train_network
from entourage.compute import resolve_device
from entourage.validation import is_integer

MAX_FLOAT64 = 1e300  # largest coordinate in double precision, so that sums are finite, too


def validate_items(X: ArrayLike | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Convert items to a tensor of finite numbers on the CPU.

    Args:
        X: array or tensor of real numbers, shape (n, *shape).
        shape: shape of one item.
        dtype: type of the result.

    Returns:
        Items, shape (n, *shape).

    Raises:
        ValueError: the items are not real numbers, have another shape, are fewer than two, or are not finite.
    """
    items = _to_tensor(X).to(dtype)
    if items.ndim != 1 + len(shape):
        raise ValueError(f"X has shape {tuple(items.shape)}; expected (items, {', '.join(map(str, shape))})")
    if len(shape) == 1 and items.shape[1] != shape[0]:
        raise ValueError(f"X has {items.shape[1]} columns; expected {shape[0]}, as in training")
    if tuple(items.shape[1:]) != shape:
        raise ValueError(f"X has items of shape {tuple(items.shape[1:])}; expected {shape}, as in training")
    if len(items) < 2:
        raise ValueError(f"X has {'one item' if len(items) else 'no items'}; expected two or more")
    max_value = MAX_FLOAT64 if dtype == torch.float64 else torch.finfo(dtype).max
    fits = items.abs() <= max_value  # False for NaN
    if not bool(fits.all()):
        row = int((~fits).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"X has a value in row {row} that is not finite; expected numbers up to {max_value:.2g}")
    return items


def _to_tensor(X: ArrayLike | Tensor) -> Tensor:
    """Convert an array or tensor of real numbers to a tensor on the CPU; raise ValueError for anything else."""
    if isinstance(X, Tensor):
        if X.is_complex():
            raise ValueError("X contains complex numbers; expected real numbers")
        return X.detach().cpu()
    if sparse.issparse(X):
        raise ValueError("X is a sparse matrix; expected a dense array, such as X.toarray()")
    try:
        array = np.asarray(X)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:  # rows of different lengths, or not numbers
        raise ValueError("X cannot be converted to an array; expected rows of numbers, all of one length") from error
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(array.dtype.kind, f"values of type {array.dtype}")
        raise ValueError(f"X contains {kind}; expected real numbers")
    return torch.from_numpy(array.astype(np.float64))


DEFAULT_SET_SIZE = 1000  # for networks whose file does not state the set size of their training


class LearnedClustering(ClusterMixin, BaseEstimator):
    """Clusterer that applies a similarity learned from examples, and estimates the number of clusters.

    Implements the clustering network of the thesis, appendix A. `fit` trains a network on a sampler of example sets,
    `load` reads a trained one; `predict` clusters items of classes that were not seen in training.

    Args:
        preset: network and loss: "default", "thesis" or "original".
        k_max: maximum number of clusters; None for that of the preset or of the training. The default network supports
            more clusters than it was trained with.
        n_clusters: number of clusters, if known; None to estimate it. The default network supports any number.
        set_size: number of items that the network processes together; None for that of the training. More items are
            clustered in subsets with a shared core (see `cluster.large_scale`). Time and memory per set grow with
            set_size^2.
        metric: optional metric block of a network to be trained: "none", "euclidean", "diagonal" or "full".
        recipe: training options of `fit`; None for those of `entourage cluster train` with this sampler and preset.
        device: "auto", "cpu", "cuda", ...
        random_state: seed for the core and the subsets of more than set_size items; None for a different draw at each
            call.

    Attributes:
        network_: the trained network.
        training_result_: the `TrainingResult` of `fit`.
        labels_: cluster of each item of the last prediction, shape (n,); cluster 0 is the largest.
        n_clusters_: number of clusters.
        probabilities_: P(l | x_i, k) for k = n_clusters_, shape (n, n_clusters_).
        count_probabilities_: P(k) for k = 1, ..., k_max, shape (k_max,); the mean over all subsets.
        n_subsets_: number of subsets; 1 for at most set_size items.

    Examples:
        >>> import numpy as np
        >>> from entourage import LearnedClustering
        >>> centers = np.repeat([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], [12, 10, 8], axis=0)
        >>> X = centers + np.random.default_rng(0).normal(scale=0.1, size=centers.shape)
        >>> clustering = LearnedClustering.load("points", device="cpu")
        >>> clustering.fit_predict(X)
        array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
               2, 2, 2, 2, 2, 2, 2, 2])
        >>> clustering.n_clusters_
        3
    """

    def __init__(
        self,
        preset: str = "default",
        *,
        k_max: int | None = None,
        n_clusters: int | None = None,
        set_size: int | None = None,
        metric: Metric = "none",
        recipe: Recipe | None = None,
        device: str = "auto",
        random_state: int | None = 0,
    ) -> None:
        self.preset = preset
        self.k_max = k_max
        self.n_clusters = n_clusters
        self.set_size = set_size
        self.metric = metric
        self.recipe = recipe
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        sampler: EpisodeSampler,
        y: None = None,
        *,
        validation: EpisodeSampler | None = None,
        run_dir: str | Path | None = None,
        minutes: float | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Train the network on episodes.

        Args:
            sampler: sampler of training episodes, e.g. a `LabelledSampler`.
            y: ignored, as in all clusterers of scikit-learn.
            validation: sampler of validation episodes, from other classes; None for `sampler`.
            run_dir: folder for checkpoints; a call with the same folder resumes the training.
            minutes: training time, instead of the recipe's steps.
            progress: show progress; None: only on a terminal.

        Returns:
            The clusterer itself.

        Raises:
            ValueError: `sampler` is not a sampler, or the arguments are not compatible.
        """
        _check_parameters(self)
        if not hasattr(sampler, "draw"):
            name = type(sampler).__name__
            raise ValueError(
                f"sampler is of type {name}; expected a sampler of episodes such as LabelledSampler; "
                "to cluster items, call predict"
            )
        chosen = preset(self.preset)
        recipe = self.recipe or default_recipe(sampler, chosen)
        options = resolve_model_options(sampler, chosen, recipe.curriculum, metric=self.metric, k_max=self.k_max)
        network = init_network(sampler.shape, options, recipe.seed)
        loss = chosen.loss_for(points=len(sampler.shape) == 1)
        task = ClusterTask(network, sampler, validation or sampler, loss, recipe, notes={"preset": self.preset})
        self.network_, self.training_result_ = train_network(
            task, None if run_dir is None else Path(run_dir), minutes=minutes, device=self.device, progress=progress
        )
        return self

    @classmethod
    def load(cls, source: str | Path, **options: Any) -> Self:
        """Load a clusterer with a trained network.

        Args:
            source: file, or name of a shipped network such as "points".
            options: arguments of the constructor.

        Returns:
            The clusterer, ready to `predict`.

        Raises:
            ValueError: the network does not exist, or an option is out of range.
        """
        clusterer = cls(**options)
        _check_parameters(clusterer)
        clusterer.network_ = load_network(find_weights(source))
        return clusterer

    def save(self, path: str | Path) -> None:
        """Save the trained network to a file for `load`."""
        save_network(self._fitted_network(), path)

    def predict(self, X: ArrayLike | Tensor) -> NDArray[np.int64]:
        """Cluster items.

        Sets `labels_`, `n_clusters_`, `probabilities_`, `count_probabilities_` and `n_subsets_`.

        Args:
            X: items, shape (n, columns) or (n, channels, height, width), n >= 2, finite.

        Returns:
            Cluster of each item, shape (n,).

        Raises:
            ValueError: the items have another shape, are fewer than two, or are not finite.
        """
        _check_parameters(self)
        network = self._fitted_network()
        standard = len(network.shape) == 1 and network.options.standardise
        items = validate_items(X, network.shape, torch.float64 if standard else torch.float32)
        device = resolve_device(self.device)
        network.to(device).eval()
        k_max = self._resolve_k_max(network, len(items))

        @torch.inference_mode()
        def predict_subset(rows: NDArray[np.int64]) -> SetPrediction:
            subset = items[torch.from_numpy(rows)].unsqueeze(0)  # (1, m, *shape)
            # On the CPU: a distant origin requires double precision, which some devices lack.
            x = standardize(subset).float() if standard else subset
            prediction: SetPrediction = network(x.to(device), k_max)
            return prediction

        rng = np.random.default_rng(self.random_state)
        set_size = _resolve_set_size(self.set_size, network, len(items))
        partition = cluster_in_subsets(predict_subset, len(items), set_size, rng, self.n_clusters)
        self.count_probabilities_, self.n_subsets_ = partition.count, partition.n_subsets
        self.labels_, self.probabilities_ = _order_by_size(partition.probabilities)
        self.n_clusters_ = self.probabilities_.shape[1]
        self._warn_about_limits(k_max, len(items))
        return self.labels_

    def predict_proba(self, X: ArrayLike | Tensor) -> Floats:
        """Cluster items as `predict` does and return P(l | x_i, k), shape (n, n_clusters_); rows sum to 1."""
        self.predict(X)
        return self.probabilities_

    def fit_predict(self, X: ArrayLike | Tensor, y: None = None) -> NDArray[np.int64]:
        """Equivalent to `predict`: the network is trained on other data."""
        return self.predict(X)

    def _warn_about_limits(self, k_max: int, n: int) -> None:
        """Warn if fewer clusters have members than requested, or if the estimated number is the largest considered."""
        most_likely = int(self.count_probabilities_.argmax()) + 1
        if self.n_clusters_ < (self.n_clusters or most_likely):
            origin = "were requested" if self.n_clusters else "are most probable"
            message = f"{self.n_clusters or most_likely} clusters {origin}, but only {self.n_clusters_} have members"
            warnings.warn(message, stacklevel=3)
        if self.n_clusters is None and k_max < n and most_likely == k_max:
            supported = _supports_any_k(self.network_)
            more = "increase k_max (--max-clusters)" if supported else "this network does not support more"
            message = f"the most probable number of clusters is {k_max}, the largest considered"
            warnings.warn(f"{message}; there may be more: {more}", stacklevel=3)

    def _resolve_k_max(self, network: ClusterNetwork, n: int) -> int:
        """Return the maximum number of clusters; raise ValueError if `n_clusters` exceeds the network or n."""
        k_max, k = self.k_max or network.options.k_max, self.n_clusters
        if k is None:
            return k_max
        max_value = n if _supports_any_k(network) else min(k_max, n)
        if k > max_value:
            limit = "the number of items" if max_value == n else "the maximum of this network"
            raise ValueError(f"n_clusters: {k} clusters requested; expected 1 to {max_value}, {limit}")
        return max(k_max, k)

    def _fitted_network(self) -> ClusterNetwork:
        if not hasattr(self, "network_"):
            raise NotFittedError("this LearnedClustering has no trained network; call fit, or load a network")
        return self.network_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")


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


def _check_parameters(clusterer: LearnedClustering) -> None:
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


def _order_by_size(probabilities: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Remove empty clusters and sort the others by size; returns labels (n,) and probabilities (n, k)."""
    labels = probabilities.argmax(1)
    sizes = np.bincount(labels, minlength=probabilities.shape[1])
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    probabilities = probabilities[:, order]
    new_label = np.empty(len(sizes), dtype=np.int64)
    new_label[order] = np.arange(len(order))
    # Labels are mapped, not computed by another argmax: a tie could be resolved differently.
    return new_label[labels], probabilities / probabilities.sum(1, keepdims=True)
