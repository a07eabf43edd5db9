"""Items as users give them to be clustered, and what is wrong with them in one line.

`LearnedClustering`: a scikit-learn clusterer whose notion of a cluster was learned from examples.
"""

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

MAX_FLOAT64 = 1e300  # of points in double precision: their sum is to be finite too


def validate_items(X: ArrayLike | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Items as a tensor of finite numbers on the CPU, shape (n, *shape).

    Args:
        X: an array or a tensor of real numbers.
        shape: of one item.
        dtype: of the result.

    Raises:
        ValueError: they are no numbers, have another shape, are fewer than two, or are not finite.
    """
    items = _to_tensor(X).to(dtype)
    if items.ndim != 1 + len(shape):
        raise ValueError(f"X has shape {tuple(items.shape)}; expected (items, {', '.join(map(str, shape))})")
    if len(shape) == 1 and items.shape[1] != shape[0]:
        raise ValueError(f"X has {items.shape[1]} columns; the network was trained for {shape[0]}")
    if tuple(items.shape[1:]) != shape:
        raise ValueError(f"X has items of shape {tuple(items.shape[1:])}; the network was trained for {shape}")
    if len(items) < 2:
        raise ValueError(f"X has {'one item' if len(items) else 'no items'}; expected two or more to cluster")
    max_value = MAX_FLOAT64 if dtype == torch.float64 else torch.finfo(dtype).max
    fits = items.abs() <= max_value  # neither does NaN
    if not bool(fits.all()):
        row = int((~fits).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"X has a value in row {row} that is not finite; expected numbers up to {max_value:.2g}")
    return items


def _to_tensor(X: ArrayLike | Tensor) -> Tensor:
    """An array or a tensor of real numbers as a tensor on the CPU; anything else is one line that says what it is."""
    if isinstance(X, Tensor):
        if X.is_complex():
            raise ValueError("X holds complex numbers; expected real ones")
        return X.detach().cpu()
    if sparse.issparse(X):
        raise ValueError("X is a sparse matrix; expected a dense array, such as X.toarray()")
    try:
        array = np.asarray(X)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:  # rows of several lengths, or no numbers
        raise ValueError("X is no array; expected rows of numbers, all of one length") from error
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(array.dtype.kind, f"values of type {array.dtype}")
        raise ValueError(f"X holds {kind}; expected real numbers")
    return torch.from_numpy(array.astype(np.float64))


DEFAULT_SET_SIZE = 1000  # items, where a network does not say with how many it was trained


class LearnedClustering(ClusterMixin, BaseEstimator):
    """Groups unseen items as the examples were grouped that it learned from, and says how many groups there are.

    Args:
        preset: "default", "thesis" or "original": the network and its loss.
        k_max: the most clusters it can find; None for the preset's, or what the network was trained with. The default
            network can be asked for more than it was trained with.
        n_clusters: the number of clusters, if it is known; None to have it found. The default network takes any.
        set_size: items that are looked at together; None for as many as the network was trained with. Larger data are
            clustered in parts that share a core (see `coherent`). Time and memory of a look grow with set_size^2.
        metric: "none", "euclidean", "diagonal" or "full": the optional metric block of a network that is to be trained.
        recipe: how `fit` trains; None for what `entourage cluster train` does with such a sampler and preset.
        device: "auto", "cpu", "cuda"...
        random_state: draws the core and the parts of data larger than set_size; None draws others at every call.

    Attributes:
        network_: the trained network.
        labels_: the cluster of each item of the last prediction, shape (n,), the largest cluster being 0.
        n_clusters_: how many there are.
        probabilities_: P(l | x_i, k) for that number, shape (n, n_clusters_).
        count_probabilities_: P(k) for k = 1, ..., k_max, shape (k_max,); the mean over all parts of large data.
        n_subsets_: how many parts the items were looked at in, 1 if there were no more than set_size.

    Example:
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
        """Learns what belongs together from episodes.

        Args:
            sampler: of episodes, e.g. a `LabelledSampler`.
            y: ignored, as everywhere in scikit-learn's clusterers.
            validation: of episodes to validate with, of other classes; the sampler itself by default.
            run_dir: a folder for checkpoints; a call with the same folder goes on where it was stopped.
            minutes: how long it may take, instead of the recipe's steps.
            progress: show a line; None: only on a terminal.

        Raises:
            ValueError: it was given items instead of a sampler, or what it is given does not fit together.
        """
        _check_parameters(self)
        if not hasattr(sampler, "draw"):
            name = type(sampler).__name__
            raise ValueError(
                f"fit was given a {name}; expected a sampler of episodes to learn from, such as LabelledSampler; "
                "predict clusters items"
            )
        chosen = preset(self.preset)
        recipe = self.recipe or default_recipe(sampler, chosen)
        options = resolve_model_options(sampler, chosen, recipe.curriculum, metric=self.metric, k_max=self.k_max)
        network = init_network(sampler.shape, options, recipe.seed)
        loss = chosen.loss_for(points=len(sampler.shape) == 1)
        about = {"preset": self.preset}
        task = ClusterTask(network, sampler, validation or sampler, loss, recipe, notes=about)
        self.network_, self.training_result_ = train_network(
            task, None if run_dir is None else Path(run_dir), minutes=minutes, device=self.device, progress=progress
        )
        return self

    @classmethod
    def load(cls, source: str | Path, **options: Any) -> Self:
        """A clusterer with a trained network.

        Args:
            source: a file, or the name of a network that comes with the package, such as "points".
            options: arguments of the constructor.

        Raises:
            ValueError: there is no such network, or an option is out of range.
        """
        clusterer = cls(**options)
        _check_parameters(clusterer)
        clusterer.network_ = load_network(find_weights(source))
        return clusterer

    def save(self, path: str | Path) -> None:
        """Writes the trained network, for `load`."""
        save_network(self._fitted_network(), path)

    def predict(self, X: ArrayLike | Tensor) -> NDArray[np.int64]:
        """The cluster of each item, shape (n,); sets `n_clusters_`, `probabilities_` and `count_probabilities_`.

        Args:
            X: the items, shape (n, columns) or (n, channels, height, width), n >= 2, finite.

        Raises:
            ValueError: on items of another shape, fewer than two, or values that are not finite.
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
            one = items[torch.from_numpy(rows)].unsqueeze(0)  # (1, m, *shape)
            # Here, as not every device knows double precision, which far origins need.
            x = standardize(one).float() if standard else one
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
        """The probability of each cluster for each item, shape (n, n_clusters_); rows sum to 1. For X see `predict`."""
        self.predict(X)
        return self.probabilities_

    def fit_predict(self, X: ArrayLike | Tensor, y: None = None) -> NDArray[np.int64]:
        """The same as `predict`: what there is to learn was learned from other data."""
        return self.predict(X)

    def _warn_about_limits(self, k_max: int, n: int) -> None:
        """Warns where the number of clusters is not quite what was asked for, or may not be the last word."""
        most_likely = int(self.count_probabilities_.argmax()) + 1
        if self.n_clusters_ < (self.n_clusters or most_likely):
            requested = "were asked for" if self.n_clusters else "are likeliest"
            message = f"{self.n_clusters or most_likely} clusters {requested}, {self.n_clusters_} have members"
            warnings.warn(f"{message}: no item is likeliest to be in the others", stacklevel=3)
        if self.n_clusters is None and k_max < n and most_likely == k_max:
            more = (
                "raise k_max (--max-clusters)" if _supports_any_k(self.network_) else "this network counts no further"
            )
            message = f"the likeliest number of clusters is {k_max}, the largest that was considered"
            warnings.warn(f"{message}; there may be more: {more}", stacklevel=3)

    def _resolve_k_max(self, network: ClusterNetwork, n: int) -> int:
        """The most clusters to consider: what is known of their number counts, where the network is free to."""
        k_max, k = self.k_max or network.options.k_max, self.n_clusters
        if k is None:
            return k_max
        max_value = n if _supports_any_k(network) else min(k_max, n)
        if k > max_value:
            limit = "the items there are" if max_value == n else "the most this network finds"
            raise ValueError(f"{k} clusters were asked for; expected 1 to {max_value}, {limit}")
        return max(k_max, k)

    def _fitted_network(self) -> ClusterNetwork:
        if not hasattr(self, "network_"):
            raise NotFittedError("this LearnedClustering has not learned to cluster yet; call fit, or load a network")
        return self.network_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")


def _supports_any_k(network: ClusterNetwork) -> bool:
    """Whether a network may be asked for more clusters than it was trained with."""
    return network.options.network == "attention"


def _resolve_set_size(requested: int | None, network: ClusterNetwork, n: int) -> int:
    """How many items are looked at together; an LSTM that reads rows of distances leaves no choice."""
    fixed = network.options.set_size
    if fixed is None:
        return requested or int(network.notes.get("set_size", DEFAULT_SET_SIZE))
    if requested not in (None, fixed):
        raise ValueError(f"set_size is {requested}; this network reads sets of {fixed} items, expected that or None")
    if n < fixed:
        raise ValueError(f"X has {n} items; this network reads sets of {fixed}, expected as many or more")
    return fixed


def _check_parameters(clusterer: LearnedClustering) -> None:
    """Notices constructor arguments that are none."""
    for name, min_value in (("k_max", 1), ("n_clusters", 1), ("set_size", 1), ("random_state", 0)):
        value = getattr(clusterer, name)
        if value is not None and not (is_integer(value) and value >= min_value):
            raise ValueError(f"{name} is {value!r}; expected a whole number, {min_value} or more, or None")
    requested, max_value = clusterer.n_clusters, clusterer.k_max
    if requested is not None and max_value is not None and requested > max_value:
        raise ValueError(
            f"n_clusters is {requested}; expected {max_value} or less, the value of k_max (--max-clusters)"
        )


def _order_by_size(probabilities: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Clusters that have members, the largest first: their labels (n,) and probabilities (n, k)."""
    labels = probabilities.argmax(1)
    sizes = np.bincount(labels, minlength=probabilities.shape[1])
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    probabilities = probabilities[:, order]
    name = np.empty(len(sizes), dtype=np.int64)
    name[order] = np.arange(len(order))
    return name[labels], probabilities / probabilities.sum(
        1, keepdims=True
    )  # by name, not by the largest again: there may be ties
