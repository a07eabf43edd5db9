"""Similarities between all pairs of rows, and the two ways of chapter 4 to make them non-negative.

All of them are dense, O(n^2 d) time and O(n^2) memory, symmetric and differentiable: made for mini-batches and small
data sets. `neighbours.py` and `graph.py` do the same for large n without ever holding n x n numbers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SCALE_NEIGHBOR = 7  # Zelnik-Manor and Perona's choice, and the original code's


def cosine(x: Tensor) -> Tensor:
    """Cosine of the angle between all pairs of rows.

    Args:
        x: embeddings, shape (n, d).

    Returns:
        Similarities in [-1, 1], shape (n, n). A zero row is similar to nothing, itself included.
    """
    unit = normalize_rows(x)  # (n, d)
    return unit @ unit.T


def normalize_rows(x: Tensor) -> Tensor:
    """Each row scaled to length 1, shape (n, d), be it 1e-37 or 1e38 long (in float32); a zero row stays zero."""
    scaled = _scale_rows(x)
    # The largest number is 1 now, and so is the least length, unless the row is zero.
    return scaled * scaled.square().sum(dim=1, keepdim=True).clamp_min(0.5).rsqrt()


def pearson(x: Tensor) -> Tensor:
    """Pearson correlation between all pairs of rows (thesis, chapter 4, eq. 1).

    Unlike the cosine it ignores shifts as well as scale, and unlike a Gaussian kernel it has no bandwidth to choose.
    Values lie in [-1, 1]; the game wants them non-negative: see `clamp` and `shift`.

    Args:
        x: embeddings, shape (n, d).

    Returns:
        Similarities, shape (n, n). A constant row is similar to nothing, never NaN.
    """
    return cosine(center_rows(x))


def center_rows(x: Tensor) -> Tensor:
    """Each row over its largest number, minus its own mean, shape (n, d): what turns a cosine into a correlation.

    A row that is constant up to rounding becomes exactly zero, so that its correlation is zero and not noise.
    """
    scaled = _scale_rows(x)
    centered = scaled - scaled.mean(dim=1, keepdim=True)  # (n, d)
    noise = 8 * torch.finfo(x.dtype).eps
    return centered * (centered.detach().abs().amax(dim=1, keepdim=True) > noise)


def _scale_rows(x: Tensor) -> Tensor:
    """Each row over its largest number, same shape, so that no sum overflows and no square underflows."""
    return x / x.detach().abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def gaussian(x: Tensor, bandwidth: float | None = None, y: Tensor | None = None) -> Tensor:
    """exp(-d_ij^2 / (2 bandwidth^2)) between all pairs of rows.

    Args:
        x: features, shape (n, d).
        bandwidth: the distance at which similarity falls to exp(-1/2); by default the root mean square distance to the
            seventh neighbour among x, so that the kernel looks as far as the self-tuning one does on average. Where
            that is 0, it is the root mean square distance of all pairs, and 1 where all rows are the same: features
            that have collapsed are similar, and no error.
        y: what to compare the rows of x with, shape (q, d); each other when None.

    Returns:
        Similarities in (0, 1], shape (n, n), or (n, q) with y.

    Raises:
        ValueError: if the bandwidth is not positive.
    """
    if bandwidth is None:
        bandwidth = _default_bandwidth(x)
    squared = squared_distances(x, y)
    return torch.exp(-squared / (2 * check_bandwidth(bandwidth) ** 2))


def _default_bandwidth(x: Tensor) -> float:
    squared = squared_distances(x.detach())  # (n, n)
    for spread in (_local_scale(squared).square().mean(), squared.mean()):
        if float(spread) > torch.finfo(x.dtype).tiny:  # below, a GPU may take it for 0
            return math.sqrt(float(spread))
    return 1.0


def check_bandwidth(bandwidth: float) -> float:
    """The bandwidth, if it is one; a ValueError otherwise."""
    if not bandwidth > 0:
        raise ValueError(f"the Gaussian bandwidth is {bandwidth}; expected a number above 0 (are all points the same?)")
    return bandwidth


def self_tuning(x: Tensor, *, squared: bool = True) -> Tensor:
    """exp(-d_ij^2 / (sigma_i sigma_j)) with sigma_i the distance to the seventh neighbour (Zelnik-Manor and Perona).

    Dense regions look close and sparse ones far, so that one kernel fits both and nothing is left to choose.

    Args:
        x: features, shape (n, d).
        squared: as published; the original code of chapter 3 left out the square of d_ij.

    Returns:
        Similarities in [0, 1], shape (n, n).
    """
    d2 = squared_distances(x)
    sigma = _local_scale(d2)  # (n,)
    distance = d2 if squared else d2.sqrt()
    return torch.exp(-distance / (sigma[:, None] * sigma[None, :]).clamp_min(torch.finfo(x.dtype).tiny))


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances between all pairs of rows, exactly zero between equal rows.

    They are those of x, shape (n, n), or of x and y, shape (n, q).

    Differences are formed before they are squared: |a|^2 + |b|^2 - 2ab would lose them to rounding when the data lie
    far from the origin.
    """
    other = x if y is None else y
    return torch.cdist(x, other, compute_mode="donot_use_mm_for_euclid_dist").square()


def clamp(w: Tensor) -> Tensor:
    """Negative similarities become 0: who disagrees has no say (chapter 4's choice). Same shape as w."""
    return w.clamp_min(0)


def shift(w: Tensor) -> Tensor:
    """All similarities grow by as much as makes the least of them 0 (chapter 4's alternative). Same shape as w."""
    return w - w.detach().amin().clamp_max(0)


def _local_scale(squared: Tensor) -> Tensor:
    """Distance of each row to its seventh neighbour, or to its last where there are fewer; shape (n,)."""
    n = len(squared)
    if n == 1:
        return squared.new_ones(1)
    # Position 0 is the point itself.
    return squared.detach().kthvalue(min(SCALE_NEIGHBOR, n - 1) + 1, dim=1).values.sqrt()
