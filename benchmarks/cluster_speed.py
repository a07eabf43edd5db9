"""Time and memory of a clustering by number of rows or points, in one set and in subsets.

    python -m benchmarks.cluster_speed                 # two threads of the CPU; some two minutes
    python -m benchmarks.cluster_speed --tables        # tables of ten columns, with HDBSCAN in the same process
    python -m benchmarks.cluster_speed --device cuda

The network for tables clusters ten columns with 12 clusters; HDBSCAN has up to 20,000 rows. The shipped network for
points clusters 2D sets of 12 clusters. Up to `set_size` points, 1,000 by default, are clustered in one set; more are
clustered in subsets. Times are the fastest of several, for tables the only one; memory is the peak, of points on a GPU.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_blobs

from benchmarks.machine import machine
from entourage.cluster import LearnedClustering
from entourage.report.page import pluralize

SINGLE_SET_SIZES = (250, 500, 1000, 2000)
SUBSET_SIZES = (2000, 4000, 8000)
TABLE_SIZES = (1000, 5000, 20_000, 100_000)
MAX_HDBSCAN = 20_000
REPEATS = 3


def main() -> None:
    """Print seconds and, on a GPU, mebibytes for each number of points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads.")
    parser.add_argument("--tables", action="store_true", help="Measure the network for tables.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(machine())
    if arguments.tables:
        for n in TABLE_SIZES:
            print(f"{n:7,} rows: {tables(n)}", flush=True)
        return
    points(250, 250, arguments.device)  # warm-up
    for title, sizes, set_size in (
        ("in one set", SINGLE_SET_SIZES, max(SINGLE_SET_SIZES)),
        ("in subsets", SUBSET_SIZES, None),
    ):
        for n in sizes:
            print(f"{n:6,} points {title}: {points(n, set_size, arguments.device)}", flush=True)


def tables(n: int) -> str:
    """Measure one clustering of a table of n rows, and HDBSCAN, and format both with the peak memory of the process."""
    X, _ = make_blobs(n, 10, centers=12, cluster_std=2.5, random_state=0)
    clusterer = LearnedClustering(device="cpu")
    seconds = _seconds(clusterer, X)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = f"{seconds:.1f} s, {memory:.1f} GiB, {pluralize(clusterer.n_clusters_, 'clusters')}"
    if n > MAX_HDBSCAN:
        return result
    start = time.perf_counter()
    HDBSCAN(min_cluster_size=10, copy=True).fit(X)
    return f"{result}; HDBSCAN {time.perf_counter() - start:.1f} s"


def points(n: int, set_size: int | None, device: str) -> str:
    """Measure one clustering of n points and format its cost."""
    clusterer = LearnedClustering("points", set_size=set_size, device=device)
    X, _ = make_blobs(n, centers=12, center_box=(-40, 40), random_state=0)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = min(_seconds(clusterer, X) for _ in range(REPEATS))
    memory = f", {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB" if device == "cuda" else ""
    result = f"{pluralize(clusterer.n_clusters_, 'clusters')} in {pluralize(clusterer.n_subsets_, 'subsets')}"
    return f"{seconds:.2f} s{memory}, {result}"


def _seconds(clusterer: LearnedClustering, X: NDArray[np.float64]) -> float:
    start = time.perf_counter()
    clusterer.fit(X)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
