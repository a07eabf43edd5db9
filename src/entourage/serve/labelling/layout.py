"""Positions of all items in the plane, such that neighbours in the graph are close: the map of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from entourage.io.files import atomic_path
from entourage.io.fingerprint import fingerprint
from entourage.io.safe_formats import read_npy

EPOCHS = 200
SHOWN_EVERY = 25  # epochs between two states that are shown
NEGATIVES = 4  # random items that repel each item, per epoch
MAX_STEP = 4.0  # longest step of an item; as in UMAP
GRAVITY = 0.02  # fraction of the distance to the centre per epoch; it keeps components from drifting apart
_A, _B = 1.577, 0.895  # curve of attraction 1 / (1 + a d^2b) for UMAP's default minimum distance of 0.1
_VERSION = "layout 2"  # must change with every change of the method


def layout_steps(w: sparse.csr_matrix, features: NDArray[Any], path: Path) -> Iterator[NDArray[np.float32]]:
    """Arrange items in the plane with the loss of UMAP on the graph, beginning with the principal components.

    Args:
        w: similarities, shape (n, n), symmetric.
        features: shape (n, d).
        path: file of the last result, which is returned at once if it belongs to this graph.

    Yields:
        Positions, shape (n, 2), in [-1, 1]: first the principal components, then improved ones. Costs O(nnz) time per
        epoch.
    """
    digest = fingerprint(w.data, w.indices, _VERSION)
    stored = _load(path, digest, len(features))
    if stored is not None:
        yield stored
        return
    x = torch.from_numpy(principal_components(features)) * 10
    yield to_unit_square(x)
    generator = torch.Generator().manual_seed(0)
    edges = sparse.coo_matrix(w)
    rows, columns = (torch.from_numpy(index.astype(np.int64)) for index in (edges.row, edges.col))
    probability = torch.from_numpy(edges.data.astype(np.float32)) / float(edges.data.max(initial=1e-30))
    for epoch in range(EPOCHS):
        chosen = torch.rand(len(rows), generator=generator) < probability
        x = _epoch(x, rows[chosen], columns[chosen], 1 - epoch / EPOCHS, generator)
        if epoch % SHOWN_EVERY == SHOWN_EVERY - 1:
            yield to_unit_square(x)
    positions = to_unit_square(x)
    with atomic_path(path) as temporary:
        np.save(temporary, np.concatenate([positions, _digest_row(digest)]))
    yield positions


def principal_components(features: NDArray[Any], n_sample: int = 5000) -> NDArray[np.float32]:
    """Return the two first principal components of a sample's covariance, shape (n, 2), scaled to unit deviation."""
    sample = features[:: max(1, len(features) // n_sample)].astype(np.float64)
    mean = sample.mean(axis=0)
    _, _, directions = np.linalg.svd(sample - mean, full_matrices=False)
    directions = np.pad(directions[:2], ((0, 2 - len(directions[:2])), (0, 0)))
    projected = (features - mean.astype(features.dtype)) @ directions.T.astype(features.dtype)  # (n, 2)
    return np.asarray(projected / max(float(projected.std()), 1e-12), dtype=np.float32)


def to_unit_square(x: torch.Tensor) -> NDArray[np.float32]:
    """Scale positions, shape (n, 2), to [-1, 1] with equal factors; outliers are moved to the border."""
    centred = x - x.median(dim=0).values
    sample = centred.abs().amax(dim=1)
    scale = float(sample.kthvalue(max(1, int(0.999 * len(sample)))).values)
    return np.asarray((centred / max(scale * 1.05, 1e-12)).clamp(-1, 1).numpy(), dtype=np.float32)


def _epoch(
    x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, rate: float, generator: torch.Generator
) -> torch.Tensor:
    """Move items towards their neighbours and away from random items; return the new positions."""
    difference = x[rows] - x[columns]  # (e, 2)
    squared = difference.square().sum(dim=1, keepdim=True)
    attraction = -2 * _A * _B * squared.clamp_min(1e-6) ** (_B - 1) / (1 + _A * squared**_B)
    step = torch.zeros_like(x).index_add_(0, rows, _limited(attraction * difference))
    active = torch.zeros(len(x), 1).index_add_(0, rows, torch.ones(len(rows), 1))  # edges of each item in this epoch
    for _ in range(NEGATIVES):
        other = torch.randint(len(x), (len(x),), generator=generator)
        difference = x - x[other]
        squared = difference.square().sum(dim=1, keepdim=True)
        repulsion = 2 * _B / ((0.001 + squared) * (1 + _A * squared**_B))
        step += active * _limited(repulsion * difference)
    # All edges of an item move it at once; without a limit, those with many would overshoot.
    return x * (1 - GRAVITY * rate) + rate * _limited(step / active.clamp_min(1).sqrt())


def _limited(step: torch.Tensor) -> torch.Tensor:
    """Shorten steps, shape (k, 2), to `MAX_STEP`."""
    length = step.square().sum(dim=1, keepdim=True).sqrt()
    return step * length.clamp_min(MAX_STEP).reciprocal() * MAX_STEP


def _digest_row(digest: str) -> NDArray[np.float32]:
    return np.array([[int(digest[:6], 16), int(digest[6:12], 16)]], dtype=np.float32)  # 24 bits are exact in float32


def _load(path: Path, digest: str, n: int) -> NDArray[np.float32] | None:
    try:
        stored = read_npy(path)
    except ValueError:
        return None
    if stored.shape != (n + 1, 2) or stored.dtype != np.float32 or (stored[n:] != _digest_row(digest)).any():
        return None
    return np.asarray(stored[:n])
