"""Mixtures of Gaussians, in 64 dimensions unless stated otherwise, the data of the speed benchmarks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIMENSIONS, COMPONENTS, CLASSES = 64, 100, 10


def mixture(
    n: int, *, isotropic: bool = False, seed: int = 0, dimensions: int = DIMENSIONS
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Sample n points and their classes; each class consists of ten Gaussians.

    Args:
        n: number of points.
        isotropic: use isotropic Gaussians in all dimensions, the hardest case for a search, since distances within
            one of them are nearly equal. By default standard deviations decrease as 1/j along random axes, as in image
            features.
        seed: random seed of centres, axes and points.
        dimensions: number of dimensions d.

    Returns:
        Points, shape (n, d), and classes from 0 to 9, shape (n,).
    """
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(COMPONENTS, dimensions))
    spread = np.ones(dimensions) if isotropic else 1 / np.arange(1, dimensions + 1)
    spread /= np.sqrt(np.mean(spread**2))  # the same total variance in both cases
    component = generator.integers(COMPONENTS, size=n)
    X = np.empty((n, dimensions), dtype=np.float32)
    for c in range(COMPONENTS):
        axes, _ = np.linalg.qr(generator.normal(size=(dimensions, dimensions)))
        members = component == c
        X[members] = centres[c] + (generator.normal(size=(members.sum(), dimensions)) * spread) @ axes.T
    return X, component % CLASSES


def few_labels(classes: NDArray[np.int64], count: int = 1000, seed: int = 0) -> NDArray[np.int64]:
    """Return the classes of `count` random points and -1 for the others, shape (n,)."""
    chosen = np.random.default_rng(seed).choice(len(classes), count, replace=False)
    y = np.full(len(classes), -1)
    y[chosen] = classes[chosen]
    return y
