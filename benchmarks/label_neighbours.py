"""Nearest neighbours: IVF index and exact search next to scikit-learn and faiss at the same recall.

    python -m benchmarks.label_neighbours [--isotropic] [--n 100000]

The search effort of each index is increased until its recall on a sample is 95 %; the printed time is that of building
the index and of finding the neighbours of all points, on all cores.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from benchmarks.machine import machine
from benchmarks.mixtures import mixture
from benchmarks.recall import Recall
from entourage.game import NeighborSearch
from entourage.game.graph import default_n_neighbors

RECALL = 0.95
Found = NDArray[np.int64]


def main() -> None:
    """Print one row per method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--isotropic", action="store_true", help="Isotropic Gaussians: the hardest case.")
    arguments = parser.parse_args()
    X, _ = mixture(arguments.n, isotropic=arguments.isotropic)
    k = default_n_neighbors(len(X))
    recall = Recall(X, k)
    print(f"{machine()}\nn = {len(X):,}, k = {k}")
    for name, effort, search in _methods(X, k, recall):
        start = time.perf_counter()
        index = search()
        seconds = time.perf_counter() - start
        print(f"{name:22} {effort:12} {seconds:8.2f} s   recall {recall.of(index[recall.sample]):.3f}", flush=True)


def _methods(X: NDArray[np.float32], k: int, recall: Recall) -> Iterator[tuple[str, str, Callable[[], Found]]]:
    points = torch.from_numpy(X)
    yield "entourage, IVF", "recall 0.97", lambda: NeighborSearch(points, k).query_self().index.numpy()
    if len(X) <= 200_000:
        yield "entourage, exact", "", lambda: NeighborSearch(points, k, recall=1.0).query_self().index.numpy()
        yield (
            "scikit-learn, exact",
            "",
            lambda: NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False),
        )
    cells = 4 * math.isqrt(len(X))
    for probes in _enough(X, recall, lambda p: _ivf(X, cells, p), (4, 8, 16, 32, 64, 128)):
        yield "faiss, IVF", f"nprobe {probes}", lambda p=probes: _ivf(X, cells, p).search(X, k + 1)[1]
    for effort in _enough(X, recall, lambda e: _hnsw(X, e), (32, 64, 128, 256, 512)):
        yield "faiss, HNSW", f"ef {effort}", lambda e=effort: _hnsw(X, e).search(X, k + 1)[1]


def _enough(
    X: NDArray[np.float32], recall: Recall, build: Callable[[int], faiss.Index], efforts: tuple[int, ...]
) -> Iterator[int]:
    """Yield the smallest effort that reaches the recall, if any."""
    index = build(efforts[0])
    for effort in efforts:
        _set_effort(index, effort)
        if recall.of(index.search(X[recall.sample], recall.k + 1)[1]) >= RECALL:
            yield effort
            return
    print(f"{type(index).__name__} does not reach {RECALL} with an effort of {efforts[-1]}")


def _ivf(X: NDArray[np.float32], cells: int, probes: int) -> faiss.Index:
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(X.shape[1]), X.shape[1], cells)
    index.cp.max_points_per_centroid, index.cp.niter = 64, 10
    index.train(X)
    index.add(X)
    _set_effort(index, probes)
    return index


def _hnsw(X: NDArray[np.float32], effort: int) -> faiss.Index:
    index = faiss.IndexHNSWFlat(X.shape[1], 32)
    index.add(X)
    _set_effort(index, effort)
    return index


def _set_effort(index: faiss.Index, effort: int) -> None:
    if isinstance(index, faiss.IndexIVFFlat):
        index.nprobe = effort
    else:
        index.hnsw.efSearch = effort


if __name__ == "__main__":
    main()
