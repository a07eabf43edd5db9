"""Indices of embeddings: 10,000 pictures, and a million vectors next to faiss.

    python -m benchmarks.embed_index                   # both; needs ENTOURAGE_DATA, and 6 GB of disk for the vectors
    python -m benchmarks.embed_index --pictures 1000 --vectors 100000

The pictures are files of CUB-200-2011 and Cars-196. "Decoding and network" is the extraction of features without an
index, in the same process before and after; the mean of both is the reference. A hundred other pictures are then added.
The vectors are a mixture of Gaussians in 512 dimensions; queries are other points of the same mixture. faiss' IVF of
32-bit numbers has as many cells and the smallest number of probes with the same recall.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.mixtures import mixture
from entourage.backbones.features import extract_features
from entourage.backbones.registry import load_backbone
from entourage.data.datasets.registry import find_dataset
from entourage.embed.index.approximate import top_cosines
from entourage.embed.index.build import build_index
from entourage.embed.index.search import search_index
from entourage.embed.index.vector_index import Index

T = TypeVar("T")
ADDED, QUERIES, TOP_K, RECALL = 100, 200, 10, 0.95


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=512)
    arguments = parser.parse_args()
    print(machine())
    if arguments.pictures:
        with tempfile.TemporaryDirectory() as folder:
            pictures(Path(folder), arguments.pictures)
    if arguments.vectors:
        with tempfile.TemporaryDirectory() as folder:
            vectors(Path(folder), arguments.vectors, arguments.dimensions)


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Write the first pictures of both data sets, in a random order, as files; half of them of each."""
    paths = []
    for name in ("cub200", "cars196"):
        images = find_dataset(name)
        for row in np.random.default_rng(0).permutation(len(images))[: count // 2].tolist():
            path = folder / name / f"{row}.webp"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(images.source.content(row))
            paths.append(path)
    return paths


def pictures(folder: Path, count: int) -> None:
    """Print the speed of building, updating, loading and searching an index of pictures."""
    data, out = folder / "data", folder / "index"
    paths = write_pictures(data, count + ADDED)
    added = {path: path.read_bytes() for path in paths[-ADDED:]}
    for path in added:
        path.unlink()
    kept = sorted(path for path in paths if path not in added)
    backbone = load_backbone()
    alone = _seconds(lambda: extract_features(kept[: count // 2], backbone, progress=False))
    update, built = _timed(lambda: build_index(data, out, progress=False))
    alone += _seconds(lambda: extract_features(kept[count // 2 :], backbone, progress=False))
    print(f"{count:,} pictures, decoding and network: {count / alone:.1f} pictures/s")
    ratio = f"{alone / built:.2f} of decoding and network"
    print(f"index: {update.embedded:,} embedded, {count / built:.1f} pictures/s, {ratio}", flush=True)
    _, unchanged = _timed(lambda: build_index(data, out, progress=False))
    print(f"index, nothing changed: {unchanged:.2f} s, the network included")
    for path, content in added.items():
        path.write_bytes(content)
    update, took = _timed(lambda: build_index(data, out, progress=False))
    print(f"index, {ADDED} added: {update.embedded} embedded, {update.reused:,} reused, {took:.2f} s")
    index, loading = _timed(lambda: Index.load(out))
    _, network = _timed(lambda: index.embedder)
    print(f"loading: index {1000 * loading:.0f} ms, network {1000 * network:.0f} ms")
    names = [str(path) for path in (kept[:: count // 20])[:20]]
    outside = folder / "query.webp"
    outside.write_bytes(kept[0].read_bytes())
    search_index(index, [str(outside)])
    by_item = [_seconds(lambda name=name: search_index(index, [name])) for name in names]
    by_file = [_seconds(lambda: search_index(index, [str(outside)])) for _ in range(20)]
    for kind, times in (("an item", by_item), ("a file, embedded first", by_file)):
        print(f"search for {kind}: median {1000 * np.median(times):.1f} ms, slowest {1000 * max(times):.1f} ms")


def vectors(folder: Path, count: int, dimensions: int) -> None:
    """Print recall and milliseconds of searches in many vectors, here and with faiss."""
    X = mixture(count + QUERIES, dimensions=dimensions)[0]
    queries = X[count:] / np.linalg.norm(X[count:], axis=1, keepdims=True)
    np.save(folder / "vectors.npy", X[:count])
    del X
    _, took = _timed(lambda: build_index(folder / "vectors.npy", folder / "index", progress=False))
    index, loading = _timed(lambda: Index.load(folder / "index"))
    print(f"{count:,} x {dimensions}: index built in {took:.0f} s, loaded in {loading:.2f} s", flush=True)
    exact, took = _timed(lambda: top_cosines(queries, index.vectors, TOP_K)[0])
    print(f"exact: {1000 * took / QUERIES:.1f} ms a query, {QUERIES} queries at a time")
    probes = f"{index.version.probes} probes"
    _report(f"entourage, {probes}", lambda one: index.nearest(one, TOP_K)[0], queries, exact)
    cells = max(1, min(8192, 4 * math.isqrt(count), count // 64))
    peer = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, cells, faiss.METRIC_INNER_PRODUCT)
    peer.cp.max_points_per_centroid, peer.cp.niter = 64, 8
    faiss.omp_set_num_threads(torch.get_num_threads())
    _, took = _timed(lambda: _fill(peer, index.vectors))
    print(f"faiss, IVF of 32-bit numbers: built in {took:.0f} s", flush=True)
    for nprobe in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        peer.nprobe = nprobe
        if _recall(peer.search(queries, TOP_K)[1], exact) >= RECALL:
            break
    _report(f"faiss, {peer.nprobe} probes", lambda one: peer.search(one, TOP_K)[1], queries, exact)


def _fill(index: faiss.Index, values: NDArray[np.float32]) -> None:
    chosen = np.random.default_rng(0).permutation(len(values))[: index.nlist * 64]
    index.train(values[np.sort(chosen)])
    for start in range(0, len(values), 2**15):
        index.add(np.ascontiguousarray(values[start : start + 2**15]))


def _report(
    name: str,
    search: Callable[[NDArray[np.float32]], NDArray[np.int64]],
    queries: NDArray[np.float32],
    exact: NDArray[np.int64],
) -> None:
    """Print recall and time of searches for one query at a time, after a first pass that reads the file."""
    found = np.concatenate([search(queries[row : row + 1]) for row in range(len(queries))])
    times = [_seconds(lambda row=row: search(queries[row : row + 1])) for row in range(len(queries))]
    milliseconds = f"median {1000 * np.median(times):.2f} ms, 95 % within {1000 * np.quantile(times, 0.95):.2f} ms"
    print(f"{name}: recall {_recall(found, exact):.3f}, {milliseconds}", flush=True)


def _recall(found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    hits = sum(len(set(one) & set(other)) for one, other in zip(found.tolist(), exact.tolist(), strict=True))
    return hits / exact.size


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _seconds(work: Callable[[], object]) -> float:
    return _timed(work)[1]


if __name__ == "__main__":
    main()
