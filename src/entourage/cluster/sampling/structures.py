"""Kinds of clusters of simulated tables: Gaussians and other clouds, curves, lattices, and no structure at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
MIN_SIZE = 4  # items of a cluster


@dataclass(frozen=True)
class Structure:
    """A kind of clusters.

    Attributes:
        draw: function from a random generator and cluster sizes to items (n, d) and labels (n,).
        weight: relative frequency.
        k_max: maximum number of clusters.
        k_min: minimum number of clusters.
        min_items: minimum mean number of items of a cluster.
    """

    draw: Callable[[np.random.Generator, Labels], tuple[Floats, Labels]]
    weight: float
    k_max: int = 50
    k_min: int = 1
    min_items: int = 6


def draw_sizes(rng: np.random.Generator, n: int, k: int) -> Labels:
    """Draw sizes of k clusters with a sum of n: equal ones, or unequal ones of `MIN_SIZE` or more."""
    if rng.random() < 0.4 or k == 1:
        return np.asarray(n // k + (np.arange(k) < n % k))
    share = rng.dirichlet(np.full(k, rng.choice([1.0, 3.0, 10.0])))
    sizes = MIN_SIZE + np.floor(share * (n - MIN_SIZE * k)).astype(np.int64)
    sizes[sizes.argmax()] += n - sizes.sum()
    return sizes


def _labels(sizes: Labels) -> Labels:
    return np.repeat(np.arange(len(sizes)), sizes)


def _draw_columns(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 2, 2, 2, 2, 3, 3, 4, 5, 6, 8, 10, 13, 20, 30, 50, 80]))


def _unit(rng: np.random.Generator, count: int, d: int) -> Floats:
    v = rng.normal(size=(count, d))
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True))


def cloud(rng: np.random.Generator, n: int, d: int, kind: str) -> Floats:
    """Draw n items of a cloud of about unit variance per column, shape (n, d)."""
    if kind == "uniform":
        return rng.uniform(-1.73, 1.73, (n, d))
    if kind == "ball":
        return np.asarray(_unit(rng, n, d) * rng.random((n, 1)) ** (1 / d) * np.sqrt(d + 2))
    if kind == "laplace":
        return rng.laplace(0, 0.71, (n, d))
    if kind == "heavy":
        return np.asarray(rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(rng.uniform(2, 5), (n, 1)) / 3))
    if kind == "skewed":
        return np.asarray(rng.gamma(2.0, 0.71, (n, d)) * rng.choice([-1, 1], d))
    return rng.normal(size=(n, d))


CLOUDS = ("gaussian", "gaussian", "gaussian", "uniform", "ball", "laplace", "heavy", "skewed")


def _covariance_roots(rng: np.random.Generator, k: int, d: int, shape: str, rank: int) -> Floats:
    """Draw square roots of covariance matrices, shape (k, d, d)."""
    if shape == "spherical" or d == 1:
        return np.broadcast_to(np.eye(d), (k, d, d)).copy()
    spread = rng.choice([0.3, 0.6, 1.0])
    roots = []
    for _ in range(k):
        scale = np.exp(rng.normal(0, spread, d))
        if rank < d:
            scale[rank:] *= 0.25
        scale /= np.sqrt((scale**2).mean())
        rotation = np.eye(d) if shape == "diagonal" else np.linalg.qr(rng.normal(size=(d, d)))[0]
        roots.append(np.diag(scale) @ rotation)
        if shape == "equal":
            return np.broadcast_to(roots[0], (k, d, d)).copy()
    return np.stack(roots)


def draw_clouds(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw clouds of any shape whose nearest centres are 1.5 to 12 standard deviations apart."""
    k, d = len(sizes), _draw_columns(rng)
    shape = str(rng.choice(["spherical", "diagonal", "equal", "any", "any"]))
    rank = d if d < 5 or rng.random() < 0.5 else int(rng.integers(2, d))
    roots = _covariance_roots(rng, k, d, shape, rank)
    width = np.exp(rng.normal(0, rng.choice([0.0, 0.3, 0.7]), k))
    informative = d if rng.random() < 0.6 else int(rng.integers(1, d + 1))
    centers = np.zeros((k, d))
    centers[:, :informative] = _draw_centers(rng, k, informative)
    centers = _separate(rng, centers, roots, width)
    kinds = rng.choice(CLOUDS, k) if rng.random() < 0.3 else np.full(k, rng.choice(CLOUDS))
    items = [centers[c] + width[c] * cloud(rng, size, d, str(kinds[c])) @ roots[c] for c, size in enumerate(sizes)]
    return np.concatenate(items), _labels(sizes)


def _draw_centers(rng: np.random.Generator, k: int, d: int) -> Floats:
    """Draw centres: uniform, normal, on a lattice, in groups, or on a sphere."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.uniform(-1, 1, (k, d))
    if kind == 1:
        return rng.normal(size=(k, d))
    if kind == 2 and d <= 4:
        side = int(np.ceil(k ** (1 / d)))
        grid = np.stack(np.meshgrid(*[np.arange(side)] * d), -1).reshape(-1, d).astype(float)
        return np.asarray(grid[rng.permutation(len(grid))[:k]] + rng.normal(0, rng.choice([0.0, 0.1]), (k, d)))
    if kind == 3:
        groups = rng.normal(size=(max(1, k // 3), d)) * rng.uniform(2, 5)
        return np.asarray(groups[rng.integers(0, len(groups), k)] + rng.normal(size=(k, d)))
    return np.asarray(_unit(rng, k, d) * np.sqrt(d))


def _separate(rng: np.random.Generator, centers: Floats, roots: Floats, width: Floats) -> Floats:
    """Scale centres so that the closest pairs have a drawn distance in standard deviations along their line."""
    k = len(centers)
    if k == 1:
        return centers
    a, b = np.triu_indices(k, 1)
    step = centers[b] - centers[a]
    length = np.linalg.norm(step, axis=1)
    line = step / np.maximum(length, 1e-9)[:, None]
    spread = [width[one] * np.linalg.norm(np.einsum("md,med->me", line, roots[one]), axis=1) for one in (a, b)]
    distance = length / np.maximum((spread[0] + spread[1]) / 2, 1e-9)
    nearest = np.full(k, np.inf)
    np.minimum.at(nearest, a, distance)
    np.minimum.at(nearest, b, distance)
    wanted = np.exp(rng.uniform(np.log(2.0), np.log(12.0)))
    typical = float(np.quantile(nearest, rng.choice([0.0, 0.5])))
    centers = centers * wanted / max(typical, 1e-6)
    return _push_apart(rng, centers, spread, a, b)


def _push_apart(rng: np.random.Generator, centers: Floats, spread: list[Floats], a: Labels, b: Labels) -> Floats:
    """Move centres that are less than about 1.8 standard deviations apart, which no method could separate."""
    least = 1.8 * (spread[0] + spread[1]) / 2
    for _ in range(60):
        step = centers[b] - centers[a]
        length = np.linalg.norm(step, axis=1)
        close = length < least
        if not close.any():
            break
        direction = step + 1e-3 * rng.normal(size=step.shape)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        move = 0.55 * np.where(close, least - length, 0)[:, None] * direction
        centers = centers.copy()
        np.add.at(centers, b, move)
        np.subtract.at(centers, a, move)
    return centers


def draw_curves(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw curves and surfaces in 2 to 10 columns, at some distance from each other, with noise."""
    items, radius = [], []
    d = int(rng.choice([2, 2, 2, 3, 3, 5, 10]))
    noise = rng.choice([0.02, 0.05, 0.08, 0.12])
    kinds = (
        rng.choice(list(CURVES), len(sizes)) if rng.random() < 0.6 else np.full(len(sizes), rng.choice(list(CURVES)))
    )
    for size, kind in zip(sizes, kinds, strict=True):
        curve = CURVES[str(kind)](rng, int(size))
        points = np.zeros((size, d))
        points[:, : min(d, curve.shape[1])] = curve[:, :d]
        points = points + noise * rng.normal(size=points.shape)
        points = points @ np.linalg.qr(rng.normal(size=(d, d)))[0] * np.exp(rng.normal(0, 0.3))
        points -= points.mean(0)
        items.append(points)
        radius.append(float(np.quantile(np.linalg.norm(points, axis=1), 0.98)))
    placed = _place_apart(rng, np.array(radius), d, gap=float(rng.choice([0.05, 0.2, 0.5])))
    return np.concatenate([points + at for points, at in zip(items, placed, strict=True)]), _labels(sizes)


def _place_apart(rng: np.random.Generator, radius: Floats, d: int, gap: float) -> Floats:
    """Place balls without overlap in a region as small as random placement allows."""
    extent = float(radius.mean()) * (2 * len(radius) ** (1 / d))
    placed: list[Floats] = []
    for own in radius:
        for attempt in range(1000):
            at = rng.uniform(-1, 1, d) * extent * (1 + attempt / 50)
            if all(
                np.linalg.norm(at - other) > (own + r) * (1 + gap) for other, r in zip(placed, radius, strict=False)
            ):
                break
        placed.append(at)
    return np.stack(placed)


def _ring(rng: np.random.Generator, n: int) -> Floats:
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), rng.uniform(0.5, 1) * np.sin(angle)], 1)


def _arc(rng: np.random.Generator, n: int) -> Floats:
    angle = rng.uniform(0, rng.uniform(0.6, 1.6) * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _line(rng: np.random.Generator, n: int) -> Floats:
    along = rng.uniform(-1.5, 1.5, n)
    return np.stack([along, rng.uniform(0, 0.5) * np.sin(rng.uniform(1, 4) * along)], 1)


def _surface(rng: np.random.Generator, n: int) -> Floats:
    u, v = rng.uniform(-1, 1, (2, n))
    return np.stack([u, v, rng.uniform(-1, 1) * u**2 + rng.uniform(-1, 1) * u * v], 1)


def _blob(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(0, rng.uniform(0.1, 0.5), (n, 3))


CURVES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "ring": _ring,
    "arc": _arc,
    "line": _line,
    "surface": _surface,
    "blob": _blob,
}


def draw_nested(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw concentric rings or shells, interleaved spirals, parallel lines, or pairs of moons."""
    k, kind = len(sizes), rng.integers(4)
    items = []
    noise = rng.choice([0.02, 0.05, 0.09])
    turns = rng.uniform(0.5, 1.5)
    for c, size in enumerate(sizes):
        t = rng.random(size)
        if kind == 0:
            d = int(rng.choice([2, 2, 3]))
            points = _unit(rng, size, d) * (c + (0.3 if c else 0.0)) / k
            points = np.concatenate([points, np.zeros((size, 3 - d))], 1)
        elif kind == 1:
            angle = 2 * np.pi * (turns * np.sqrt(t) + c / k)
            points = np.stack([np.sqrt(t) * np.cos(angle), np.sqrt(t) * np.sin(angle), 0 * t], 1)
        elif kind == 2:
            points = np.stack([2 * t - 1 + 0.1 * rng.normal(), c / k + 0.05 * np.sin(6 * t), 0 * t], 1)
        else:
            angle = np.pi * t
            flip = 1 if c % 2 == 0 else -1
            points = np.stack([flip * np.cos(angle) / 2, flip * np.sin(angle) / 2, 0 * t], 1)
            points += np.array([0.5 * (c % 2) + 2.2 * (c // 2), 0.25 * (c % 2), 0])
        items.append(points)
    scale = noise / k if kind < 3 else noise * 0.5
    X = np.concatenate(items)
    X = X[:, :2] if not np.ptp(X[:, 2]) else X
    return X + scale * rng.normal(size=X.shape), _labels(sizes)


def draw_mixed(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw clouds and curves side by side, in two or three columns."""
    if len(sizes) < 2:
        return draw_curves(rng, sizes)
    half = int(rng.integers(1, len(sizes)))
    first, a = draw_curves(rng, sizes[:half])
    second, b = draw_clouds(rng, sizes[half:])
    d = min(first.shape[1], second.shape[1], 3)
    first, second = first[:, :d], second[:, :d]
    first, second = ((one - one.mean(0)) / (one.std() + 1e-9) for one in (first, second))
    shift = np.zeros(d)
    reach = np.quantile(first[:, 0], 0.999) - second[:, 0].min()
    shift[0] = reach + rng.uniform(0.2, 1.0)
    return np.concatenate([first, second + shift]), np.concatenate([a, b + half])


def draw_latent_classes(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw classes whose columns are counts, proportions or yes and no, with probabilities of each class."""
    k, d = len(sizes), int(rng.integers(4, 40))
    kind, strength = rng.integers(3), rng.uniform(0.8, 2.5)
    logit = rng.normal(0, 1, d) + strength * rng.normal(size=(k, d))
    labels = _labels(sizes)
    if kind == 0:
        return (rng.random((len(labels), d)) < 1 / (1 + np.exp(-logit[labels]))).astype(float), labels
    if kind == 1:
        return rng.poisson(np.exp(np.clip(logit[labels], -3, 3.5))).astype(float), labels
    own = logit[labels] + 0.5 * rng.normal(size=(len(labels), d))
    share = np.exp(own)
    return np.asarray(share / share.sum(1, keepdims=True)), labels


def draw_manifolds(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw classes as curved surfaces of low dimension in many columns, as images of objects."""
    d = int(rng.integers(8, 80))
    inner = int(rng.integers(1, 7))
    hidden = 24
    shared = rng.normal(size=(hidden, d)) / np.sqrt(hidden)
    distance, bend = rng.uniform(0.6, 2.5), rng.uniform(0.3, 1.2)
    items = []
    for size in sizes:
        bias = distance * rng.normal(size=hidden)
        weights = bend * rng.normal(size=(inner, hidden)) / np.sqrt(inner)
        items.append(np.tanh(rng.normal(size=(size, inner)) @ weights + bias) @ shared)
    X = np.concatenate(items)
    X = X + rng.choice([0.02, 0.1, 0.3]) * X.std() * rng.normal(size=X.shape)
    if rng.random() < 0.4:
        X = np.maximum(X - rng.normal(0, 0.3, d), 0)
    return X, _labels(sizes)


def draw_nothing(rng: np.random.Generator, sizes: Labels) -> tuple[Floats, Labels]:
    """Draw a table without clusters: one cloud, a full lattice, or a smooth surface."""
    n, d = int(sizes.sum()), _draw_columns(rng)
    kind = rng.integers(5)
    if kind == 0 and d <= 3:
        side = max(2, int(np.ceil(n ** (1 / d))))
        grid = np.stack(np.meshgrid(*[np.arange(side)] * d), -1).reshape(-1, d).astype(float)
        X = grid[rng.permutation(len(grid))[:n]] + rng.choice([0.0, 0.1]) * rng.normal(size=(n, d))
    elif kind == 1:
        hidden = np.tanh(rng.normal(size=(n, 2)) @ rng.normal(size=(2, 12)))
        X = hidden @ rng.normal(size=(12, max(d, 2))) + 0.05 * rng.normal(size=(n, max(d, 2)))
    else:
        X = cloud(rng, n, d, str(rng.choice(CLOUDS))) @ _covariance_roots(rng, 1, d, "any", d)[0]
    return X, np.zeros(len(X), dtype=np.int64)


STRUCTURES: dict[str, Structure] = {
    "clouds": Structure(draw_clouds, 0.5),
    "curves": Structure(draw_curves, 0.12, k_max=12, min_items=15),
    "nested": Structure(draw_nested, 0.1, k_max=6, k_min=2, min_items=40),
    "mixed": Structure(draw_mixed, 0.06, k_max=10, min_items=12),
    "latent classes": Structure(draw_latent_classes, 0.06, k_max=12),
    "manifolds": Structure(draw_manifolds, 0.1, k_max=20),
    "nothing": Structure(draw_nothing, 0.06, k_max=1),
}
