from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entourage.cluster.evaluation import score
from entourage.cluster.large_scale import cluster_in_subsets, to_partition
from entourage.cluster.models.assignment import SetPrediction

K_MAX = 6


class Oracle:
    """A stub network with the true clusters, numbered at random in each set; records its calls."""

    def __init__(self, truth: NDArray[np.int64], uncertainty: float = 0.02) -> None:
        self.truth, self.uncertainty, self.calls = truth, uncertainty, []
        self.rng = np.random.default_rng(5)

    def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
        self.calls.append(rows)
        present = self.rng.permutation(np.unique(self.truth[rows]))
        k = len(present)
        assignment = torch.zeros(1, len(rows), K_MAX, K_MAX)
        for other in range(1, K_MAX + 1):  # uniform for any other number of clusters
            assignment[0, :, other - 1, :other] = 1 / other
        codes = torch.from_numpy(np.argsort(present)[np.searchsorted(np.sort(present), self.truth[rows])])
        probabilities = torch.full((len(rows), k), self.uncertainty / k)
        probabilities[torch.arange(len(rows)), codes] += 1 - self.uncertainty
        assignment[0, :, k - 1, :k] = probabilities
        count = torch.full((1, K_MAX), 0.01)
        count[0, k - 1] = 1
        return SetPrediction((count / count.sum()).log(), assignment, torch.zeros(1, len(rows), 1))


def test_clusters_of_subsets_are_matched() -> None:
    truth = np.random.default_rng(0).integers(0, 4, 500)
    oracle = Oracle(truth)
    partition = cluster_in_subsets(oracle, 500, 60, np.random.default_rng(1))
    assert score(truth, partition.probabilities.argmax(1)).mr == 0
    assert partition.probabilities.shape == (500, 4)
    np.testing.assert_allclose(partition.probabilities.sum(1), 1)
    assert max(len(rows) for rows in oracle.calls) == 60
    assert len(oracle.calls) == 16  # 470 others, 30 at a time
    core = set(oracle.calls[0][:30])
    assert all(set(rows[:30]) == core for rows in oracle.calls)


def test_few_items_are_one_set() -> None:
    truth = np.array([0, 1, 1, 0, 2])
    oracle = Oracle(truth)
    partition = cluster_in_subsets(oracle, 5, 60, np.random.default_rng(0))
    assert len(oracle.calls) == 1
    assert score(truth, partition.probabilities.argmax(1)).mr == 0
    assert partition.count.argmax() == 2


def test_clusters_without_core_items_are_detected() -> None:
    truth = np.zeros(400, dtype=np.int64)
    truth[200:] = 1
    truth[395:] = 2  # five of 400: most cores of 20 have none
    result = [
        cluster_in_subsets(Oracle(truth, uncertainty=0.02), 400, 40, np.random.default_rng(seed)).probabilities
        for seed in range(8)
    ]
    errors = [score(truth, p.argmax(1)) for p in result]
    assert np.mean([e.k_right for e in errors]) >= 0.75
    assert max(e.mr for e in errors) <= 5 / 400


class DeviatingOracle(Oracle):
    """Predicts another number at one call: two clusters, the last two of which are joined, or four, one empty."""

    def __init__(self, truth: NDArray[np.int64], at: int, other: int) -> None:
        super().__init__(truth)
        self.at, self.other = at, other

    def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
        prediction = super().__call__(rows)
        if len(self.calls) == 1 + self.at:
            probabilities = prediction.assignment[0, :, 2, :3]
            prediction.assignment[0, :, 1, :2] = torch.stack(
                [probabilities[:, 0], probabilities[:, 1:].sum(-1)], dim=-1
            )
            prediction.assignment[0, :, 3, :3] = probabilities
            prediction.assignment[0, :, 3, 3] = 0
            prediction.count[0, [2, self.other - 1]] = prediction.count[0, [self.other - 1, 2]]
        return prediction


@pytest.mark.parametrize("other", [2, 4])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_the_number_of_clusters_does_not_depend_on_a_single_subset(at: int, other: int) -> None:
    truth = np.random.default_rng(0).integers(0, 3, 120)
    oracle = DeviatingOracle(truth, at, other)
    result = cluster_in_subsets(oracle, 120, 40, np.random.default_rng(1))
    assert result.probabilities.shape == (120, 3)
    assert score(truth, result.probabilities.argmax(1)).mr == 0
    assert result.n_subsets == 5
    assert result.count.argmax() == 2
    assert result.count[other - 1] == pytest.approx((1 / 1.05 + 4 * 0.01 / 1.05) / 5)
    # Subsets evaluated before the mean was for three, perhaps including a tie at the second, are evaluated again.
    assert len(oracle.calls) == 5 if at else len(oracle.calls) in (6, 7)
    assert at or np.array_equal(oracle.calls[0], oracle.calls[5])


def test_subsets_are_evaluated_at_most_twice() -> None:
    truth = np.random.default_rng(0).integers(0, 3, 120)

    class IncreasingOracle(Oracle):
        """Predicts two clusters first, and three with increasing probability later."""

        def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
            prediction = super().__call__(rows)
            confidence = min(0.1 + 0.3 * len(self.calls), 0.99)
            return replace(prediction, count=torch.tensor([[1e-9, 1 - confidence, confidence, 1e-9, 1e-9, 1e-9]]).log())

    oracle = IncreasingOracle(truth)
    result = cluster_in_subsets(oracle, 120, 40, np.random.default_rng(1))
    assert result.count.argmax() + 1 == result.probabilities.shape[1] == 3
    assert len(oracle.calls) == 6  # the mean is for three from the second subset


def test_the_reference_subset_is_not_an_outlier() -> None:
    truth = np.random.default_rng(0).integers(0, 3, 120)

    class ShuffledOracle(Oracle):
        """Predicts random clusters at its first call, with the right number."""

        def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
            prediction = super().__call__(rows)
            if len(self.calls) == 1:
                prediction.assignment[0] = prediction.assignment[
                    0, torch.randperm(len(rows), generator=torch.Generator())
                ]
            return prediction

    oracle = ShuffledOracle(truth)
    result = cluster_in_subsets(oracle, 120, 40, np.random.default_rng(1)).probabilities
    np.testing.assert_allclose(result.sum(1), 1)
    others = np.setdiff1d(np.arange(120), oracle.calls[0][20:])  # all but the first subset
    assert score(truth[others], result.argmax(1)[others]).mr == 0


class EmptyClustersOracle(Oracle):
    """Predicts empty clusters for numbers above the true one."""

    def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
        prediction = super().__call__(rows)
        k = int(prediction.count.argmax()) + 1
        for more in range(k + 1, K_MAX + 1):
            prediction.assignment[0, :, more - 1, :more] = 0
            prediction.assignment[0, :, more - 1, :k] = prediction.assignment[0, :, k - 1, :k]
        return prediction


def test_the_core_is_redrawn_for_missing_clusters_with_a_given_number() -> None:
    truth = np.zeros(400, dtype=np.int64)
    truth[200:] = 1
    truth[395:] = 2  # five of 400: most cores of 20 have none
    for seed in range(8):
        oracle = EmptyClustersOracle(truth, uncertainty=0.0)
        result = cluster_in_subsets(oracle, 400, 40, np.random.default_rng(seed), k=3).probabilities
        np.testing.assert_allclose(result.sum(1), 1)
        assert score(truth, result.argmax(1)).mr == 0
        assert len(oracle.calls) in (19, 38)  # with one core or two; no further evaluations


def test_a_given_number_of_clusters_is_used() -> None:
    truth = np.random.default_rng(0).integers(0, 3, 200)
    assert cluster_in_subsets(Oracle(truth), 200, 50, np.random.default_rng(0), k=3).probabilities.shape[1] == 3


def test_to_partition_uses_the_most_probable_or_the_given_number() -> None:
    prediction = Oracle(np.array([0, 0, 1, 1, 1]))(np.arange(5))
    assert to_partition(prediction).probabilities.shape == (5, 2)
    assert to_partition(prediction, k=4).probabilities.shape == (5, 4)
    assert to_partition(prediction).count.sum() == pytest.approx(1)


def test_probabilities_sum_to_one_for_items_unrelated_to_the_core() -> None:
    truth = np.array([0] * 14 + [1] * 6 + [2] * 20)

    class SeparatingOracle(EmptyClustersOracle):
        """Predicts a separate cluster for all items but its first 10, the core."""

        def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
            self.truth = np.full(40, 2)
            self.truth[rows[:10]] = np.array([0] * 7 + [1] * 3)
            return super().__call__(rows)

    result = cluster_in_subsets(
        SeparatingOracle(truth, uncertainty=0.0), 40, 20, np.random.default_rng(0)
    ).probabilities
    np.testing.assert_allclose(result.sum(1), 1)


def test_a_set_size_too_small_for_a_core_raises() -> None:
    with pytest.raises(ValueError, match="set_size is 3; expected 4 or more, as half of a"):
        cluster_in_subsets(Oracle(np.zeros(9, dtype=np.int64)), 9, 3, np.random.default_rng(0))


def test_all_sets_have_one_size_and_the_last_is_filled_up() -> None:
    truth = np.random.default_rng(0).integers(0, 3, 96)
    oracle = Oracle(truth)
    partition = cluster_in_subsets(oracle, 96, 20, np.random.default_rng(1))
    assert {len(rows) for rows in oracle.calls} == {20}
    assert all(len(set(rows)) == 20 for rows in oracle.calls)  # no duplicates within a set
    assert score(truth, partition.probabilities.argmax(1)).mr == 0
    assert partition.n_subsets == 9  # 86 others, 10 at a time


def test_the_number_of_clusters_is_that_of_the_mean_count() -> None:
    class DecreasingOracle(Oracle):
        """Predicts three clusters with decreasing probability, and four with the rest."""

        def __call__(self, rows: NDArray[np.int64]) -> SetPrediction:
            prediction = super().__call__(rows)
            confidence = 1 - 0.1 * len(self.calls)
            count = torch.tensor([[1e-9, 1e-9, confidence, 1 - confidence, 1e-9, 1e-9]])
            return replace(prediction, count=count.log())

    truth = np.tile([0, 1, 2], 20)
    partition = cluster_in_subsets(DecreasingOracle(truth), 60, 30, np.random.default_rng(0))
    assert partition.n_subsets == 3
    np.testing.assert_allclose(partition.count[2:4], [0.8, 0.2], atol=1e-6)
    assert cluster_in_subsets(DecreasingOracle(truth), 60, 60, np.random.default_rng(0)).n_subsets == 1
