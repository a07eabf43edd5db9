"""Clustering methods that the network for tables is compared with, each with several settings.

Every method estimates the number of clusters: HDBSCAN itself, k-means by the silhouette, mixtures of Gaussians by the
Bayesian information criterion, spectral clustering by the largest gap between eigenvalues.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import laplacian
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import StandardScaler

from entourage.cluster import LearnedClustering
from experiments.cluster_table_sets import NOISE, LabelledSet

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Found = dict[str, tuple[Labels, Labels | None]]
"""Labels with an estimated and with the given number of clusters, by setting."""

Method = Callable[[Floats, int], Found]
K_MAX = 25  # of the methods that try all numbers


def ari(known: Labels, labels: Labels) -> float:
    """Return the adjusted Rand index without background items."""
    inside = known != NOISE
    return float(adjusted_rand_score(known[inside], labels[inside]))


def row_of(method: Method, labelled: LabelledSet) -> dict[str, Any]:
    """Measure all settings of a method on a set."""
    true_k = len(set(labelled.labels.tolist()) - {NOISE})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = method(labelled.X, true_k)
    settings = {
        name: {
            "ari": ari(labelled.labels, labels),
            "k": len(set(labels.tolist()) - {NOISE}) or 1,
            "given": None if given is None else ari(labelled.labels, given),
        }
        for name, (labels, given) in found.items()
    }
    return {"half": labelled.half, "true_k": true_k, "n": len(labelled.X), "settings": settings}


def _scalings(X: Floats) -> Mapping[str, Floats]:
    return {"": X, ", scaled": StandardScaler().fit_transform(X)}


def hdbscan(X: Floats, k: int) -> Found:
    """Cluster with HDBSCAN; noise is a cluster of its own, or assigned to the nearest cluster."""
    found: Found = {}
    for scaled, Z in _scalings(X).items():
        for size in (5, 10, 20, 40):
            labels = HDBSCAN(min_cluster_size=min(size, len(Z) // 2), copy=True).fit_predict(Z)
            found[f"size {size}{scaled}"] = labels, None
            noise = labels == NOISE
            if noise.any() and not noise.all():
                nearest = NearestNeighbors(n_neighbors=1).fit(Z[~noise]).kneighbors(Z[noise])[1][:, 0]
                labels = labels.copy()
                labels[noise] = labels[~noise][nearest]
            found[f"size {size}{scaled}, noise assigned"] = np.maximum(labels, 0), None
    return found


def k_means(X: Floats, k: int) -> Found:
    """Cluster with k-means, k by the silhouette."""
    found: Found = {}
    for scaled, Z in _scalings(X).items():
        fits = {c: KMeans(c, n_init=4, random_state=0).fit_predict(Z) for c in range(2, K_MAX + 1)}
        sample = None if len(Z) <= 1000 else 1000
        quality = {
            c: silhouette_score(Z, labels, sample_size=sample, random_state=0) if len(set(labels.tolist())) > 1 else -1
            for c, labels in fits.items()
        }
        given = np.zeros(len(Z), dtype=np.int64) if k == 1 else fits[k]
        found[f"silhouette{scaled}"] = fits[max(quality, key=lambda c: quality[c])], given
    return found


def mixture(X: Floats, k: int) -> Found:
    """Cluster with mixtures of Gaussians, k by the Bayesian information criterion."""
    found: Found = {}
    Z = StandardScaler().fit_transform(X)  # affects only the initialisation and the regularisation
    for kind in ("full", "tied", "diag"):
        fits = {}
        for c in range(1, K_MAX + 1):
            if c * (Z.shape[1] + 1) < len(Z) or c == 1:
                fits[c] = GaussianMixture(c, covariance_type=kind, reg_covar=1e-4, random_state=0).fit(Z)
        quality = {c: fit.bic(Z) for c, fit in fits.items()}
        best = min(quality, key=lambda c: quality[c])
        given = fits.get(k) or GaussianMixture(k, covariance_type=kind, reg_covar=1e-4, random_state=0).fit(Z)
        found[kind] = fits[best].predict(Z), given.predict(Z)
    return found


def spectral(X: Floats, k: int) -> Found:
    """Cluster a neighbour graph by eigenvectors, k by the largest gap between its eigenvalues."""
    found: Found = {}
    for scaled, Z in _scalings(X).items():
        for near in (5, 10, 20):
            graph = kneighbors_graph(Z, near, include_self=False)
            graph = (graph + graph.T) / 2
            values = np.linalg.eigvalsh(np.asarray(laplacian(graph.toarray(), normed=True)))[: K_MAX + 1]
            gaps = np.diff(values)  # gaps[c - 1] is that after c eigenvalues
            for least in (1, 2):
                best = least + int(gaps[least - 1 :].argmax())
                found[f"{near} neighbours, k from {least}{scaled}"] = _cut(graph, best), _cut(graph, k)
    return found


def _cut(graph: Any, k: int) -> Labels:
    if k == 1:
        return np.zeros(graph.shape[0], dtype=np.int64)
    model = SpectralClustering(k, affinity="precomputed", assign_labels="cluster_qr", random_state=0)
    return np.asarray(model.fit_predict(graph))


def network(X: Floats, k: int) -> Found:
    """Cluster with the network for tables."""
    clustering = LearnedClustering(device="cpu").fit(X)
    return {"": (clustering.labels_, clustering.labels_for(k))}


BASELINES: dict[str, Method] = {
    "HDBSCAN": hdbscan,
    "k-means, silhouette": k_means,
    "Gaussian mixture, BIC": mixture,
    "spectral, eigengap": spectral,
}
NETWORK = "LearnedClustering"
