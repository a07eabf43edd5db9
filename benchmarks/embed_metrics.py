"""Retrieval metrics at the size of Stanford Online Products: time and peak memory.

    python -m benchmarks.embed_metrics               # 60,000 embeddings of 512 numbers; some minutes on two cores
    python -m benchmarks.embed_metrics --device cuda
    python -m benchmarks.embed_metrics --items 6000 --peer  # and pytorch-metric-learning, same embeddings

Classes have five members on average, as in that data set. K-means into 12,000 clusters, for NMI, is timed separately
(`--clusters`); the memory printed after it is the peak of both.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import torch
from torch import Tensor

from benchmarks.machine import machine
from entourage.embed import retrieval_metrics
from entourage.embed.metrics import k_means


def main() -> None:
    """Print metrics, seconds and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--clusters", action="store_true", help="Time k-means as well; minutes on a CPU.")
    parser.add_argument("--peer", action="store_true", help="Measure pytorch-metric-learning as well.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine())
    at_rest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    embeddings, labels = sample_embeddings(arguments.items, arguments.dimensions)
    embeddings = embeddings.to(arguments.device)
    start = time.perf_counter()
    metrics = retrieval_metrics(embeddings, labels, nmi=False)
    seconds = time.perf_counter() - start
    print(f"{arguments.items:,} x {arguments.dimensions}: {seconds:.1f} s on {arguments.device}, {_memory(at_rest)}")
    print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()), flush=True)
    if arguments.clusters:
        start = time.perf_counter()
        n_clusters = len(k_means(torch.nn.functional.normalize(embeddings), arguments.items // 5).unique())
        print(f"k-means: {n_clusters:,} clusters, {time.perf_counter() - start:.1f} s, {_memory(at_rest)}", flush=True)
    if arguments.peer:
        _peer(embeddings, labels, seconds, at_rest)


def sample_embeddings(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Sample embeddings whose nearest neighbour nearly always has the same class, unlike many farther neighbours."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(n // 5, (n,), generator=generator)
    embeddings = torch.randn(n // 5, d, generator=generator)[labels]
    return embeddings.add_(torch.randn(n, d, generator=generator), alpha=2.0), labels


def _peer(embeddings: Tensor, labels: Tensor, ours: float, at_rest: float) -> None:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=include, k="max_bin_count")
    start = time.perf_counter()
    theirs = calculator.get_accuracy(torch.nn.functional.normalize(embeddings), labels.to(embeddings.device))
    seconds = time.perf_counter() - start
    print(f"pytorch-metric-learning: {seconds:.1f} s, ratio {seconds / ours:.2f}, {_memory(at_rest)}")
    print(", ".join(f"{name} {theirs[name]:.4f}" for name in include))


def _memory(at_rest: float) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = f"peak memory of the process {peak:.2f} GB, {at_rest:.2f} GB of it before the data"
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        text += f"; of the GPU {torch.cuda.max_memory_allocated() / 2**30:.2f} GB"
    return text


if __name__ == "__main__":
    main()
