from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from entourage.cluster.tables.candidates import Candidate, one_hot, propose
from entourage.cluster.tables.features import _best_cuts, _Context, _silhouettes, describe, pairwise_agreement
from entourage.cluster.tables.prepare import PreparedTable


def blobs(n: int = 87) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.arange(n) % 3
    return np.array([[0, 0], [5, 0], [0, 5]])[truth] + rng.normal(size=(n, 2)), truth


def test_features_are_finite_and_depend_neither_on_order_nor_on_scale() -> None:
    X, _ = blobs()
    found = propose(PreparedTable(X), 6)
    values = describe(PreparedTable(X), found).values
    assert np.isfinite(values).all()
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = [Candidate(c.methods, c.k, c.labels[order]) for c in found]
    other = describe(PreparedTable(1000 * X[order]), shuffled).values
    # The agreement is estimated on random pairs of items if there are many; here, all pairs are used.
    np.testing.assert_allclose(other, values, atol=2e-3)


def test_agreement_is_the_adjusted_rand_index() -> None:
    rng = np.random.default_rng(0)
    partitions = [rng.integers(0, k, 80) for k in (1, 2, 3, 5)]
    agreement = pairwise_agreement(partitions, 0)
    for i, first in enumerate(partitions):
        for j, second in enumerate(partitions):
            assert agreement[i, j] == pytest.approx(adjusted_rand_score(first, second), abs=1e-6)
    large = [rng.integers(0, 2, 500), np.arange(500) % 2]
    large.append(np.where(rng.random(500) < 0.2, large[0], large[1]))
    assert pairwise_agreement(large, 0)[1, 2] == pytest.approx(adjusted_rand_score(large[1], large[2]), abs=0.06)


def test_silhouettes_are_those_of_scikit_learn() -> None:
    X, truth = blobs()
    members = one_hot(truth)
    ours = _silhouettes(_Context(PreparedTable(X)), truth, members, members.sum(0))
    expected = silhouette_samples(X, truth)
    assert ours[0] == pytest.approx(min(expected[truth == c].mean() for c in range(3)), abs=1e-4)
    assert ours[2] == pytest.approx(expected.mean(), abs=1e-4)
    assert ours[3] == pytest.approx((expected < 0).mean())


def test_a_cut_explains_most_of_two_groups_and_two_thirds_of_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 4000)
    along = np.concatenate([rng.normal(size=4000), rng.normal(size=4000) + 20 * (np.arange(4000) % 2)])
    cuts = _best_cuts(along, labels, np.array([4000.0, 4000.0]))
    assert cuts[0, 0] == pytest.approx(2 / np.pi, abs=0.02)
    assert cuts[1, 0] > 0.98
    assert cuts[1, 1] > 5 > cuts[0, 1]


def test_the_true_partition_has_the_best_features() -> None:
    X, truth = blobs()
    found = propose(PreparedTable(X), 6)
    result = describe(PreparedTable(X), found)
    right = [i for i, c in enumerate(found) if adjusted_rand_score(truth, c.labels) > 0.95]
    assert result.agreement[right][:, right].min() > 0.9
    assert result.k.tolist() == [c.k for c in found]
