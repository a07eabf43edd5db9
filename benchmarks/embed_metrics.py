"""Retrieval metrics at the size of Stanford Online Products: time and peak memory.

    python -m benchmarks.embed_metrics               # 60,000 embeddings of 512 numbers; some minutes on two cores
    python -m benchmarks.embed_metrics --device cuda
    python -m benchmarks.embed_metrics --items 6000 --peer  # beside pytorch-metric-learning, on the same embeddings

Classes have five members on average, as there. K-means into 12,000 clusters, which NMI needs, is timed apart
(`--clusters`); the memory that is told after it is that of both.
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
    """Prints metrics, seconds and the most memory that was in use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--clusters", action="store_true", help="time k-means as well; minutes on a CPU")
    parser.add_argument("--peer", action="store_true", help="pytorch-metric-learning, too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine())
    at_rest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    embeddings, labels = made(arguments.items, arguments.dimensions)
    embeddings = embeddings.to(arguments.device)
    began = time.perf_counter()
    metrics = retrieval_metrics(embeddings, labels, nmi=False)
    seconds = time.perf_counter() - began
    print(f"{arguments.items:,} x {arguments.dimensions}: {seconds:.1f} s on {arguments.device}, {_memory(at_rest)}")
    print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()), flush=True)
    if arguments.clusters:
        began = time.perf_counter()
        n_clusters = len(k_means(torch.nn.functional.normalize(embeddings), arguments.items // 5).unique())
        print(f"k-means: {n_clusters:,} clusters, {time.perf_counter() - began:.1f} s, {_memory(at_rest)}", flush=True)
    if arguments.peer:
        _peer(embeddings, labels, seconds, at_rest)


def made(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Embeddings whose nearest neighbour is nearly always of their class, while many of the others are farther away."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(n // 5, (n,), generator=generator)
    embeddings = torch.randn(n // 5, d, generator=generator)[labels]
    return embeddings.add_(torch.randn(n, d, generator=generator), alpha=2.0), labels


def _peer(embeddings: Tensor, labels: Tensor, ours: float, at_rest: float) -> None:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=include, k="max_bin_count")
    began = time.perf_counter()
    theirs = calculator.get_accuracy(torch.nn.functional.normalize(embeddings), labels.to(embeddings.device))
    seconds = time.perf_counter() - began
    print(f"pytorch-metric-learning: {seconds:.1f} s, ratio {seconds / ours:.2f}, {_memory(at_rest)}")
    print(", ".join(f"{name} {theirs[name]:.4f}" for name in include))


def _memory(at_rest: float) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = f"peak memory of the process {peak:.2f} GB, {at_rest:.2f} GB of it before there were any data"
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        text += f"; of the GPU {torch.cuda.max_memory_allocated() / 2**30:.2f} GB"
    return text


if __name__ == "__main__":
    main()
