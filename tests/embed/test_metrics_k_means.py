"""K-means compared with scikit-learn, and edge cases."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from entourage.embed import metrics as clustering
from entourage.embed.metrics import k_means


def blobs(n: int, d: int, k: int, spread: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(k, (n,), generator=generator)
    noise = torch.randn(n, d, generator=generator)
    return torch.randn(k, d, generator=generator)[label] + spread * noise, label


def inertia(points: Tensor, assignment: Tensor) -> float:
    return sum(
        float((points[assignment == c] - points[assignment == c].mean(dim=0)).square().sum())
        for c in assignment.unique()
    )


@pytest.mark.parametrize("draws", [256, 3], ids=["one seed at a time", "many at once"])
def test_inertia_matches_scikit_learn(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SEEDING_ROUNDS", draws)
    points, _ = blobs(600, 8, 12, 0.7)
    ours = np.mean([inertia(points, k_means(points, 12, seed=seed, n_init=1)) for seed in range(5)])
    theirs = np.mean([KMeans(12, n_init=1, random_state=seed).fit(points.numpy()).inertia_ for seed in range(5)])
    assert ours < 1.03 * theirs  # the spread over seeds is about one per cent


def test_seeding_in_high_dimensions_covers_the_clusters() -> None:
    # In 200 dimensions random seeds would miss many of 30 clusters; those of scikit-learn cover 28 or more.
    points, label = blobs(900, 200, 30, 0.6)
    seeds = clustering._kmeans_plus_plus(points, 30, torch.Generator().manual_seed(0))
    assert len(label[torch.cdist(seeds, points).argmin(dim=1)].unique()) >= 28


def test_several_starts_avoid_local_optima() -> None:
    points, _ = blobs(300, 2, 20, 0.05)
    theirs = min(KMeans(20, n_init=10, random_state=seed).fit(points.numpy()).inertia_ for seed in range(3))
    single = [inertia(points, k_means(points, 20, seed=seed, n_init=1)) for seed in range(6)]
    several = [inertia(points, k_means(points, 20, seed=seed)) for seed in range(6)]
    assert max(single) > 1.3 * theirs  # two true clusters are merged, and one is divided
    assert max(several) < 1.01 * theirs


def test_default_number_of_starts_decreases_with_cost() -> None:
    assert clustering.default_n_init(300, 10, 64) == 10
    assert clustering.default_n_init(6_000, 100, 512) == 10
    assert clustering.default_n_init(60_000, 14, 512) == 3
    assert clustering.default_n_init(8_000, 450, 512) == 2
    assert clustering.default_n_init(60_000, 12_000, 512) == 1
    with pytest.raises(ValueError, match="n_init is 0; expected 1 or more"):
        k_means(torch.zeros(8, 2), 2, n_init=0)


def test_as_many_clusters_as_points() -> None:
    points, _ = blobs(40, 3, 5, 1.0)
    assert sorted(k_means(points, 40).tolist()) == list(range(40))


def test_converged_points_are_assigned_to_the_nearest_mean() -> None:
    points, _ = blobs(300, 3, 5, 0.8)
    assignment = k_means(points.double(), 5, tol=0.0)
    centres = torch.stack([points.double()[assignment == c].mean(dim=0) for c in range(5)])
    assert torch.equal(torch.cdist(points.double(), centres).argmin(dim=1), assignment)


def test_separated_clusters_far_from_the_origin() -> None:
    points, label = blobs(200, 4, 6, 0.01)
    assignment = k_means(points + 3e4, 6)  # the points are distinct in float32 there, their squares are not
    assert len(torch.unique(torch.stack([assignment, label]), dim=1).T) == 6


@pytest.mark.parametrize("k", [1, 2, 7])
def test_more_clusters_than_distinct_points(k: int) -> None:
    points = torch.tensor([[0.0, 1.0], [5.0, 5.0]]).repeat_interleave(4, dim=0)
    assignment = k_means(points, k)
    assert assignment.shape == (8,)
    if k > 1:
        assert not set(assignment[:4].tolist()) & set(assignment[4:].tolist())


def test_empty_cluster_moves_to_the_farthest_point() -> None:
    points = torch.tensor([[0.0], [1.0], [2.0], [50.0]])
    means = clustering._update_centers(points, torch.tensor([0, 0, 0, 0]), torch.tensor([[1.0], [99.0]]))
    torch.testing.assert_close(means, torch.tensor([[13.25], [50.0]]))


def test_equal_seeds_give_equal_results() -> None:
    points, _ = blobs(200, 4, 20, 2.0)
    assert torch.equal(k_means(points, 20, seed=3), k_means(points, 20, seed=3))
    assert not torch.equal(k_means(points, 20, seed=3), k_means(points, 20, seed=4))


@pytest.mark.parametrize("k", [0, 9])
def test_n_clusters_out_of_range_raises(k: int) -> None:
    with pytest.raises(ValueError, match=f"n_clusters is {k}; expected 1 to 8"):
        k_means(torch.zeros(8, 2), k)


def test_non_integer_seed_raises() -> None:
    with pytest.raises(ValueError, match=r"^seed is 'a'; expected a whole number$"):
        k_means(torch.randn(8, 2), 2, seed="a")  # type: ignore[arg-type]
