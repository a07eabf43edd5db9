from __future__ import annotations

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from entourage.cluster.sampling.structures import draw_clouds, draw_curves, draw_nested, draw_nothing


def test_clouds_are_separable_for_the_most_part() -> None:
    rates = []
    for seed in range(25):
        X, labels = draw_clouds(np.random.default_rng(seed), np.full(4, 60))
        nearest = KNeighborsClassifier(15).fit(X, labels).predict(X)
        rates.append((nearest == labels).mean())
    assert np.mean(rates) > 0.85
    assert min(rates) < 0.97  # and some overlap


def test_curves_are_separate() -> None:
    for seed in range(10):
        X, labels = draw_curves(np.random.default_rng(seed), np.full(3, 60))
        assert (KNeighborsClassifier(1).fit(X[::2], labels[::2]).predict(X[1::2]) == labels[1::2]).mean() > 0.9


def test_nested_shapes_are_not_linear() -> None:
    X, labels = draw_nested(np.random.default_rng(3), np.full(3, 80))
    assert (KNeighborsClassifier(3).fit(X[::2], labels[::2]).predict(X[1::2]) == labels[1::2]).mean() > 0.8


def test_tables_without_structure_have_one_cluster() -> None:
    for seed in range(10):
        X, labels = draw_nothing(np.random.default_rng(seed), np.array([50]))
        assert not labels.any()
        assert len(X) == 50
