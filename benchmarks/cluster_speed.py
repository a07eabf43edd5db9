"""Time and memory of a clustering by number of points, in one set and in subsets.

    python -m benchmarks.cluster_speed                 # two threads of the CPU; some two minutes
    python -m benchmarks.cluster_speed --device cuda

The shipped network for points clusters 2D sets of 12 clusters. Up to `set_size` points, 1,000 by default, are clustered
in one set; more are clustered in subsets. Times are the fastest of several; memory is the peak on a GPU.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from benchmarks.machine import machine
from entourage.cluster import LearnedClustering
from entourage.report.page import pluralize

SINGLE_SET_SIZES = (250, 500, 1000, 2000)
SUBSET_SIZES = (2000, 4000, 8000)
REPEATS = 3


def main() -> None:
    """Print seconds and, on a GPU, mebibytes for each number of points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads.")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(machine())
    points(250, 250, arguments.device)  # warm-up
    for title, sizes, set_size in (
        ("in one set", SINGLE_SET_SIZES, max(SINGLE_SET_SIZES)),
        ("in subsets", SUBSET_SIZES, None),
    ):
        for n in sizes:
            print(f"{n:6,} points {title}: {points(n, set_size, arguments.device)}", flush=True)


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
