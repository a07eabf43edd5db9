"""Approximate search in millions of vectors: the inverted file of faiss, mapped into memory.

faiss is an extra. The vectors of the cells are stored in 16-bit numbers; the best candidates are compared again with
the vectors of the index, so that cosines are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.game.neighbors import topk_smallest
from entourage.io.files import atomic_path

MIN_VECTORS = 100_000  # smaller indices are searched exactly in a few milliseconds
RECALL, SAMPLE, TOP_K = 0.97, 256, 10  # probes are chosen for this recall at 10 on a sample of vectors
TRAINING_ROWS = 64  # vectors per cell that k-means is trained on
N_ITER = 8  # iterations of k-means
MAX_CELLS = 8192
CANDIDATES = 4  # candidates per requested neighbour that are compared exactly
BLOCK_ROWS = 2**15  # vectors compared at a time


def top_cosines(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the k vectors with the largest cosine for each query, by comparing all.

    Args:
        queries: rows of length 1, shape (q, d).
        vectors: rows of length 1, shape (n, d), n >= k; may be mapped into memory.
        k: number of neighbours.

    Returns:
        Rows and cosines, shape (q, k), largest first. Costs O(q n d) time, in blocks of rows.
    """
    points = torch.from_numpy(np.ascontiguousarray(queries))  # (q, d)
    rows = torch.empty(len(points), 0, dtype=torch.long)
    cosines = torch.empty(len(points), 0)
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = points @ torch.from_numpy(vectors[start : start + BLOCK_ROWS]).T  # (q, b)
        best = topk_smallest(-block, min(k, block.shape[1]))
        rows = torch.cat([rows, best + start], dim=1)
        cosines = torch.cat([cosines, block.gather(1, best)], dim=1)
        if rows.shape[1] > k:
            kept = cosines.topk(k, dim=1).indices
            rows, cosines = rows.gather(1, kept), cosines.gather(1, kept)
    order = cosines.sort(dim=1, descending=True, stable=True).indices
    return rows.gather(1, order).numpy(), cosines.gather(1, order).numpy()


def build_cells(vectors: NDArray[np.float32], path: Path, approximate: bool | None = None) -> int:
    """Build the approximate index of vectors, if it is requested or worth it and faiss is installed.

    The number of cells to search is doubled until the recall on a sample is at least 0.97.

    Args:
        vectors: rows of length 1, shape (n, d); may be mapped into memory.
        path: the file to write.
        approximate: whether to build it; None: for 100,000 vectors or more if faiss is installed.

    Returns:
        The number of cells to search for each query; 0 if the index is not built.

    Raises:
        ValueError: it is requested and faiss is missing.
    """
    if approximate is False or (approximate is None and len(vectors) < MIN_VECTORS):
        return 0
    faiss = _import_faiss(required=approximate is True)
    if faiss is None:
        return 0
    n, dim = vectors.shape
    cells = max(1, min(MAX_CELLS, 4 * math.isqrt(n), n // TRAINING_ROWS))
    kind = faiss.ScalarQuantizer.QT_fp16
    quantizer = faiss.IndexFlatIP(dim)
    index = faiss.IndexIVFScalarQuantizer(quantizer, dim, cells, kind, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid, index.cp.niter = TRAINING_ROWS, N_ITER
    chosen = np.sort(np.random.default_rng(0).permutation(n)[: cells * TRAINING_ROWS])
    with _as_many_threads_as_torch(faiss):
        index.train(vectors[chosen])
        for start in range(0, n, BLOCK_ROWS):
            index.add(np.ascontiguousarray(vectors[start : start + BLOCK_ROWS]))
        with atomic_path(path) as temporary:
            faiss.write_index(index, str(temporary))
        return _choose_probes(faiss, index, vectors)


def _choose_probes(faiss: ModuleType, index: Any, vectors: NDArray[np.float32]) -> int:
    k = min(TOP_K + 1, len(vectors))
    sample = np.random.default_rng(1).permutation(len(vectors))[:SAMPLE]
    truth = top_cosines(vectors[sample], vectors, k)[0]
    probes = 1
    while True:
        found = CellSearch(faiss, index, probes).search(vectors[sample], vectors, k)[0]
        hits = sum(len(set(one) & set(other)) for one, other in zip(found.tolist(), truth.tolist(), strict=True))
        if hits >= RECALL * truth.size or probes >= index.nlist:
            return min(probes, int(index.nlist))
        probes *= 2


class CellSearch:
    """Search of an inverted file.

    Args:
        faiss: the module.
        index: its index.
        probes: number of cells to search for each query.
    """

    def __init__(self, faiss: ModuleType, index: Any, probes: int) -> None:
        self.faiss, self.index = faiss, index
        self.index.nprobe = probes

    @classmethod
    def open(cls, path: Path, probes: int) -> CellSearch | None:
        """Map the file of an index into memory; None if faiss is missing, and the search is then exact.

        Raises:
            ValueError: the file is damaged.
        """
        faiss = _import_faiss()
        if faiss is None:
            return None
        try:
            return cls(faiss, faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY), probes)
        except RuntimeError as error:
            raise ValueError(f"{path}: cannot be read; build the index again") from error

    def search(
        self, queries: NDArray[np.float32], vectors: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the k vectors with the largest cosine for each query among those of the nearest cells.

        Args:
            queries: rows of length 1, shape (q, d).
            vectors: the vectors of the index, shape (n, d).
            k: number of neighbours.

        Returns:
            Rows and exact cosines, shape (q, k), largest first; rows of -1 if the cells hold fewer vectors.
        """
        queries = np.ascontiguousarray(queries)
        with _as_many_threads_as_torch(self.faiss):
            candidates = self.index.search(queries, min(CANDIDATES * k, len(vectors)))[1]  # (q, c)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        cosines = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for query, found in enumerate(candidates):
            found = found[found >= 0]
            exact = vectors[found] @ queries[query]  # (c,)
            order = np.argsort(-exact, kind="stable")[:k]
            rows[query, : len(order)], cosines[query, : len(order)] = found[order], exact[order]
        return rows, cosines


def _import_faiss(*, required: bool = False) -> ModuleType | None:
    try:
        import faiss
    except ImportError as error:
        if required:
            raise ValueError('approximate: faiss is missing; expected `pip install "entourage[faiss]"`') from error
        return None
    module: ModuleType = faiss
    return module


@contextmanager
def _as_many_threads_as_torch(faiss: ModuleType) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
