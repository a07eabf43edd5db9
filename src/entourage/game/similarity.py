"""Similarities between all pairs of rows, and two ways to make them non-negative (chapter 4).

All are dense, symmetric and differentiable, for mini-batches and small data sets: O(n^2 d) time, O(n^2) memory. For
large n, `game.neighbors` and `game.graph` compute sparse similarities.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SCALE_NEIGHBOR = 7  # as in Zelnik-Manor and Perona, and in the original code


def cosine(x: Tensor) -> Tensor:
    """Compute the cosine of the angle between all pairs of rows.

    Args:
        x: embeddings, shape (n, d).

    Returns:
        Similarities in [-1, 1], shape (n, n). A zero row has similarity 0 to all rows, itself included.
    """
    unit = normalize_rows(x)  # (n, d)
    return unit @ unit.T


def normalize_rows(x: Tensor) -> Tensor:
    """Scale each row to length 1, shape (n, d), for lengths from 1e-37 to 1e38 in float32; a zero row stays zero."""
    scaled = _scale_rows(x)
    # The largest entry is 1, so that the length is at least 1 unless the row is zero.
    return scaled * scaled.square().sum(dim=1, keepdim=True).clamp_min(0.5).rsqrt()


def pearson(x: Tensor) -> Tensor:
    """Compute the Pearson correlation between all pairs of rows (thesis, chapter 4, eq. 1).

    Invariant to shift and scale, unlike the cosine; no bandwidth to choose, unlike a Gaussian kernel. Values lie in
    [-1, 1]; the replicator dynamics needs non-negative similarities: see `clamp` and `shift`.

    Args:
        x: embeddings, shape (n, d).

    Returns:
        Similarities, shape (n, n). A constant row has similarity 0 to all rows, never NaN.
    """
    return cosine(center_rows(x))


def center_rows(x: Tensor) -> Tensor:
    """Scale each row by its largest entry and subtract its mean, shape (n, d); the cosine is then the correlation.

    A row that is constant up to rounding becomes exactly zero, so that its correlation is zero and not noise.
    """
    scaled = _scale_rows(x)
    centered = scaled - scaled.mean(dim=1, keepdim=True)  # (n, d)
    noise = 8 * torch.finfo(x.dtype).eps
    return centered * (centered.detach().abs().amax(dim=1, keepdim=True) > noise)


def _scale_rows(x: Tensor) -> Tensor:
    """Divide each row by its largest absolute entry, so that no sum overflows and no square underflows."""
    return x / x.detach().abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def gaussian(x: Tensor, bandwidth: float | None = None, y: Tensor | None = None) -> Tensor:
    """Compute exp(-d_ij^2 / (2 bandwidth^2)) between all pairs of rows.

    Args:
        x: features, shape (n, d).
        bandwidth: distance at which the similarity is exp(-1/2). By default the root mean square distance to the
            seventh neighbour among x, the average range of the self-tuning kernel. Where that is 0, the root mean
            square distance of all pairs, and 1 if all rows are equal: collapsed features are similar, not an error.
        y: rows to compare x with, shape (q, d); x itself when None.

    Returns:
        Similarities in (0, 1], shape (n, n), or (n, q) with y.

    Raises:
        ValueError: the bandwidth is not positive.
    """
    if bandwidth is None:
        bandwidth = _default_bandwidth(x)
    squared = squared_distances(x, y)
    return torch.exp(-squared / (2 * check_bandwidth(bandwidth) ** 2))


def _default_bandwidth(x: Tensor) -> float:
    squared = squared_distances(x.detach())  # (n, n)
    for spread in (_local_scale(squared).square().mean(), squared.mean()):
        if float(spread) > torch.finfo(x.dtype).tiny:  # smaller numbers may be flushed to 0 on a GPU
            return math.sqrt(float(spread))
    return 1.0


def check_bandwidth(bandwidth: float) -> float:
    """Return the bandwidth; raise a ValueError unless it is positive."""
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is {bandwidth}; expected a number above 0 (are all points equal?)")
    return bandwidth


def self_tuning(x: Tensor, *, squared: bool = True) -> Tensor:
    """Compute the self-tuning kernel exp(-d_ij^2 / (sigma_i sigma_j)) of Zelnik-Manor and Perona.

    sigma_i is the distance to the seventh neighbour: the kernel adapts to the local density without a parameter.

    Args:
        x: features, shape (n, d).
        squared: use d_ij^2, as published; the original code of chapter 3 uses d_ij.

    Returns:
        Similarities in [0, 1], shape (n, n).
    """
    d2 = squared_distances(x)
    sigma = _local_scale(d2)  # (n,)
    distance = d2 if squared else d2.sqrt()
    return torch.exp(-distance / (sigma[:, None] * sigma[None, :]).clamp_min(torch.finfo(x.dtype).tiny))


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Compute squared Euclidean distances between all pairs of rows, exactly zero between equal rows.

    Distances are computed from differences: |a|^2 + |b|^2 - 2ab loses them to rounding far from the origin. The shape
    is (n, n), or (n, q) between x and y.
    """
    other = x if y is None else y
    return torch.cdist(x, other, compute_mode="donot_use_mm_for_euclid_dist").square()


def clamp(w: Tensor) -> Tensor:
    """Set negative similarities to 0 (chapter 4's choice).

    Args:
        w: similarities, any shape.

    Returns:
        Non-negative similarities, same shape.
    """
    return w.clamp_min(0)


def shift(w: Tensor) -> Tensor:
    """Subtract the minimum from all similarities if it is negative (chapter 4's alternative).

    Args:
        w: similarities, any shape.

    Returns:
        Non-negative similarities, same shape. The minimum is a constant for the gradient.
    """
    return w - w.detach().amin().clamp_max(0)


def _local_scale(squared: Tensor) -> Tensor:
    """Return the distance of each row to its seventh neighbour, or to its last if there are fewer; shape (n,)."""
    n = len(squared)
    if n == 1:
        return squared.new_ones(1)
    # The smallest distance is that of the point to itself.
    return squared.detach().kthvalue(min(SCALE_NEIGHBOR, n - 1) + 1, dim=1).values.sqrt()
