"""Simulated tables with known clusters, as varied as tables of users.

A table is drawn in three steps: clusters (`structures`), columns (irrelevant, correlated, distorted or discrete ones),
and items (background noise, rounded and repeated values).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from entourage.cluster.sampling.structures import STRUCTURES, draw_sizes

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

MAX_COLUMNS = 120
NOISE = -1  # label of background items, which belong to no cluster


@dataclass(frozen=True)
class TableOptions:
    """Ranges of simulated tables.

    Attributes:
        n_min: minimum number of items.
        n_max: maximum number of items; numbers are log-uniform.
        k_max: maximum number of clusters.
        k_min: minimum number of clusters.
        structures: names of the kinds of clusters; all by default.
        plain: fraction of tables whose columns and items are not altered.
    """

    n_min: int = 20
    n_max: int = 1000
    k_max: int = 50
    k_min: int = 1
    structures: tuple[str, ...] = field(default_factory=lambda: tuple(STRUCTURES))
    plain: float = 0.3


@dataclass(frozen=True)
class SimulatedTable:
    """A table with known clusters.

    Attributes:
        X: items, shape (n, d).
        labels: cluster of each item, shape (n,); `NOISE` for background.
        structure: kind of the clusters.
    """

    X: Floats
    labels: Labels
    structure: str


def simulate_table(rng: np.random.Generator, options: TableOptions | None = None) -> SimulatedTable:
    """Draw a table.

    Args:
        rng: random generator.
        options: ranges; None for the defaults.

    Returns:
        Table and clusters, items in random order.
    """
    options = options or TableOptions()
    n = round(np.exp(rng.uniform(np.log(options.n_min), np.log(options.n_max))))
    name = str(rng.choice(options.structures, p=_weights(options.structures)))
    structure = STRUCTURES[name]
    k = draw_k(rng, options.k_min, min(options.k_max, structure.k_max, max(1, n // structure.min_items)))
    k = max(k, structure.k_min)
    sizes = draw_sizes(rng, n, k)
    X, labels = structure.draw(rng, sizes)
    if rng.random() > options.plain:
        X, labels = alter(rng, X, labels)
    order = rng.permutation(len(X))
    return SimulatedTable(X[order], labels[order], name)


def _weights(names: tuple[str, ...]) -> Floats:
    weights = np.array([STRUCTURES[name].weight for name in names])
    return np.asarray(weights / weights.sum())


def draw_k(rng: np.random.Generator, k_min: int, k_max: int) -> int:
    """Draw a number of clusters: few are more frequent than many."""
    if rng.random() < 0.12 or k_max <= k_min:
        return k_min
    limit = min(k_max, int(rng.choice([4, 8, 12, 20, 50], p=[0.3, 0.25, 0.2, 0.15, 0.1])))
    return int(rng.integers(min(k_min + 1, limit), limit + 1))


def alter(rng: np.random.Generator, X: Floats, labels: Labels) -> tuple[Floats, Labels]:
    """Alter columns and items of a table: each alteration is applied with a probability of its own."""
    for probability, alteration in COLUMN_ALTERATIONS:
        if rng.random() < probability:
            X = alteration(rng, X)
    if rng.random() < 0.2:
        X, labels = add_noise(rng, X, labels)
    if rng.random() < 0.15:
        X = round_values(rng, X)
    if rng.random() < 0.06 and len(X) < 600:
        repeated = rng.integers(0, len(X), rng.integers(1, len(X) // 2 + 2))
        X, labels = np.concatenate([X, X[repeated]]), np.concatenate([labels, labels[repeated]])
    if rng.random() < 0.04:
        X = X.copy()
        X[rng.integers(len(X)), rng.integers(X.shape[1])] += rng.choice([-1, 1]) * rng.uniform(10, 1000) * X.std()
    return X, labels


def rotate(rng: np.random.Generator, X: Floats) -> Floats:
    """Rotate the columns."""
    return np.asarray(X @ random_rotation(rng, X.shape[1]))


def random_rotation(rng: np.random.Generator, d: int) -> Floats:
    """Draw a rotation or reflection, shape (d, d)."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def scale_columns(rng: np.random.Generator, X: Floats) -> Floats:
    """Multiply each column by a factor of its own, as for other units, and shift it."""
    factor = np.exp(rng.normal(0, rng.choice([0.3, 1.5]), X.shape[1]))
    return np.asarray(X * factor + rng.normal(0, 3, X.shape[1]))


def add_irrelevant(rng: np.random.Generator, X: Floats) -> Floats:
    """Add columns that do not depend on the clusters."""
    n, d = X.shape
    count = int(min(np.ceil(d * rng.choice([0.25, 0.5, 1.0])), MAX_COLUMNS - d))
    if count < 1:
        return X
    kind = rng.integers(3)
    noise = rng.normal(size=(n, count)) if kind == 0 else rng.uniform(-1.7, 1.7, (n, count))
    if kind == 2:
        noise = noise @ rng.normal(size=(count, count)) / np.sqrt(count)
    return np.concatenate([X, noise * X.std() * rng.uniform(0.3, 1.0)], axis=1)


def add_correlated(rng: np.random.Generator, X: Floats) -> Floats:
    """Add noisy linear combinations of the columns."""
    n, d = X.shape
    count = int(min(rng.integers(1, 2 * d + 3), MAX_COLUMNS - d))
    if count < 1:
        return X
    mixed = X @ rng.normal(size=(d, count)) / np.sqrt(d)
    return np.concatenate([X, mixed + rng.uniform(0, 0.5) * mixed.std() * rng.normal(size=(n, count))], axis=1)


def lift(rng: np.random.Generator, X: Floats) -> Floats:
    """Map the items to more columns by a random smooth function."""
    d = X.shape[1]
    wide = int(min(np.exp(rng.uniform(np.log(d + 1), np.log(8 * d + 8))), MAX_COLUMNS))
    z = (X - X.mean(0)) / (X.std() + 1e-9)
    hidden = np.tanh(z @ rng.normal(size=(d, wide)) * rng.uniform(0.2, 0.8) / np.sqrt(d) + rng.normal(size=wide) * 0.5)
    out = hidden @ rng.normal(size=(wide, wide)) / np.sqrt(wide) if rng.random() < 0.5 else hidden
    if rng.random() < 0.3:
        out = np.maximum(out, 0)
    return np.asarray(out + rng.choice([0.0, 0.05, 0.2]) * out.std() * rng.normal(size=out.shape))


def distort(rng: np.random.Generator, X: Floats) -> Floats:
    """Distort columns by increasing functions, so that they are skewed or heavy-tailed."""
    z = (X - X.mean(0)) / (X.std(0) + 1e-9)
    functions: list[Callable[[Floats], Floats]] = [
        lambda v: np.exp(0.6 * v),
        lambda v: v + 0.15 * v**3,
        lambda v: np.sign(v) * np.log1p(np.abs(v)),
        lambda v: np.exp(0.3 * v),
    ]
    chosen = functions[rng.integers(len(functions))]
    mask = rng.random(X.shape[1]) < rng.choice([0.5, 1.0])
    return np.where(mask, chosen(z), z)


def discretize(rng: np.random.Generator, X: Floats) -> Floats:
    """Replace some columns by their rank in a few levels, as for grades and categories."""
    X = X.copy()
    for column in np.flatnonzero(rng.random(X.shape[1]) < rng.uniform(0.1, 0.5)):
        levels = rng.integers(2, 6)
        edges = np.quantile(X[:, column], np.sort(rng.uniform(0.1, 0.9, levels - 1)))
        X[:, column] = np.searchsorted(edges, X[:, column]) * X[:, column].std()
    return X


def add_noise(rng: np.random.Generator, X: Floats, labels: Labels) -> tuple[Floats, Labels]:
    """Add uniform background items, up to 15 % of the table."""
    count = int(rng.uniform(0.01, 0.15) * len(X)) + 1
    low, high = np.quantile(X, 0.01, axis=0), np.quantile(X, 0.99, axis=0)
    margin = rng.uniform(0, 0.4) * (high - low)
    noise = rng.uniform(low - margin, high + margin, (count, X.shape[1]))
    return np.concatenate([X, noise]), np.concatenate([labels, np.full(count, NOISE)])


def round_values(rng: np.random.Generator, X: Floats) -> Floats:
    """Round to a few significant steps over the spread of a column."""
    step = (X.std(0) + 1e-9) / rng.choice([3.0, 6.0, 10.0, 20.0])
    return np.asarray(np.round(X / step) * step)


COLUMN_ALTERATIONS: tuple[tuple[float, Callable[[np.random.Generator, Floats], Floats]], ...] = (
    (0.3, rotate),
    (0.2, add_correlated),
    (0.12, lift),
    (0.2, distort),
    (0.15, add_irrelevant),
    (0.1, discretize),
    (0.3, scale_columns),
)
