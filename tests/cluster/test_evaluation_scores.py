from __future__ import annotations

import itertools

import numpy as np
import pytest

from entourage.cluster.evaluation import (
    ClusteringScores,
    contingency_table,
    greedy_misclassification_rate,
    mean_scores,
    misclassification_rate,
    score,
)


def test_a_perfect_clustering_is_invariant_to_renaming() -> None:
    perfect = score([0, 0, 1, 1, 2], [7, 7, 3, 3, 5])
    assert perfect == ClusteringScores(mr=0, greedy_mr=0, nmi=1, nmi_geometric=1, ari=1, k_error=0, k_right=1)


def test_the_misclassification_rate_uses_the_best_matching() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        labels_true, labels_pred = rng.integers(0, 4, 25), rng.integers(0, rng.integers(2, 6), 25)
        table = contingency_table(labels_true, labels_pred)
        square = np.zeros((max(table.shape),) * 2, dtype=int)
        square[: table.shape[0], : table.shape[1]] = table
        best = max(sum(square[i, p[i]] for i in range(len(square))) for p in itertools.permutations(range(len(square))))
        assert misclassification_rate(table) == pytest.approx(1 - best / 25)


def test_greedy_matching_is_an_upper_bound() -> None:
    table = np.array([[5, 4], [4, 0]])  # greedy matching selects the 5, which leaves the 0
    assert misclassification_rate(table) == pytest.approx(1 - 8 / 13)
    assert greedy_misclassification_rate(table) == pytest.approx(1 - 5 / 13)
    rng = np.random.default_rng(1)
    for _ in range(50):
        random = rng.integers(0, 9, (rng.integers(1, 6), rng.integers(1, 6))) + 1
        assert greedy_misclassification_rate(random) >= misclassification_rate(random) - 1e-12


def test_mutual_information_matches_a_manual_computation() -> None:
    # H(true) = log 2, H(pred) = 1.5 log 2; labels_pred determines labels_true, so that I = log 2.
    mixed = score([0, 0, 1, 1], [0, 0, 1, 2])
    assert mixed.nmi == pytest.approx(1 / 1.25)
    assert mixed.nmi_geometric == pytest.approx(1 / 1.5**0.5)
    assert (mixed.mr, mixed.k_error, mixed.k_right) == (0.25, 1, 0)


def test_noise_is_a_cluster_except_in_the_k_error() -> None:
    noisy = score([0, 0, 0, 1, 1], [0, 0, -1, 1, 1])
    assert noisy.mr == pytest.approx(0.2)
    assert noisy.k_error == 0
    assert score([0, 1], [-1, -1]).k_error == 2


def test_mean_scores_averages_each_score() -> None:
    perfect, half = score([0, 0, 1, 1], [0, 0, 1, 1]), score([0, 0, 1, 1], [0, 0, 0, 0])
    mean = mean_scores([perfect, half])
    assert (mean.mr, mean.nmi, mean.k_error, mean.k_right) == (0.25, 0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="scores is empty; expected at least one"):
        mean_scores([])


@pytest.mark.parametrize(("labels_true", "labels_pred"), [([], []), ([0, 1], [0]), ([[0]], [[0]])])
def test_incompatible_labels_raise(labels_true: list[int], labels_pred: list[int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        score(labels_true, labels_pred)
