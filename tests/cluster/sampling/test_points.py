from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from entourage.cluster.sampling import points
from entourage.cluster.sampling.points import (
    MAX_NOISE,
    MAX_STRETCH,
    MIN_CLUSTER_POINTS,
    MIN_POINTS_UNEQUAL,
    REFERENCE_CLUSTER_SIZE,
    STRETCHED_FRACTION,
    UNEQUAL_FRACTION,
    PointSampler,
)
from entourage.cluster.sampling.shapes import GAUSSIANS, KINDS, draw_shapes

FIRST = [[0.148205, 0.558242], [0.185699, 0.807560]]  # points of two sets


def enumerated_prior(sampler: PointSampler, n: int) -> float:
    """Compute phi by enumeration of k, the kinds, and the assignments of points to groups of Gaussians."""

    def chains(remaining: int, base: int) -> list[tuple[float, list[int]]]:
        if remaining == 0:
            return [(1.0, [])]
        fits = [i for i in sampler.kinds if KINDS[i].n_clusters <= remaining and KINDS[i].min_points <= base]
        return [(p / len(fits), [i, *rest]) for i in fits for p, rest in chains(remaining - KINDS[i].n_clusters, base)]

    def sizes(kind: int, points: int, base: int) -> list[tuple[float, list[int]]]:
        clusters = KINDS[kind].n_clusters
        if kind < GAUSSIANS[0]:
            return [(1.0, [base] * (clusters - 1) + [points - base * (clusters - 1)])]
        result = []
        for random in itertools.product(range(clusters), repeat=points - clusters):
            result.append((clusters ** -(points - clusters), [1 + random.count(c) for c in range(clusters)]))
        return result

    total = 0.0
    for k in range(sampler.k_min, sampler.k_max + 1):
        base = n // k
        for probability, chain in chains(k, base):
            expected = 0.0
            for index, kind in enumerate(chain):
                points = KINDS[kind].n_clusters * base + (n % k if index == len(chain) - 1 else 0)
                expected += sum(p * sum(s * (s - 1) for s in split) for p, split in sizes(kind, points, base))
            total += probability * expected
    return total / (sampler.k_max - sampler.k_min + 1) / (n * (n - 1))


@pytest.mark.parametrize(("k_max", "n"), [(1, 2), (2, 5), (3, 8), (5, 7), (5, 11)])
def test_pair_prior_is_exact(k_max: int, n: int) -> None:
    sampler = PointSampler(k_max)
    assert math.isclose(sampler.pair_prior(n), enumerated_prior(sampler, n), rel_tol=1e-12)


def test_phi_matches_drawn_sets(generator: torch.Generator) -> None:
    for n, sampler in (
        (23, PointSampler(5)),
        (44, PointSampler(7)),
        (50, PointSampler(5, k_min=2, varied=1)),
        (50, PointSampler(5, k_min=2, unequal=1)),
    ):
        episode = sampler.draw(1500, n, generator)
        fraction = (episode.same.sum((1, 2)) - n) / (n * (n - 1))
        assert abs(float(fraction.mean()) - sampler.pair_prior(n)) < 4 * float(fraction.std()) / 1500**0.5


def test_sets_have_k_clusters(generator: torch.Generator) -> None:
    episode = PointSampler(5).draw(500, 72, generator)
    assert episode.x.shape == (500, 72, 2)
    assert episode.labels is not None
    assert episode.known is None
    for labels, k, same in zip(episode.labels, episode.k, episode.same, strict=True):
        assert labels.unique().tolist() == list(range(int(k)))
        assert torch.equal(same, labels[:, None] == labels[None])
    assert (torch.bincount(episode.k, minlength=6)[1:] > 65).all()  # uniform: 100 each, 3.9 standard deviations
    assert episode.x.min() > -0.2
    assert episode.x.max() < 1.2


def test_clusters_have_equal_size_except_for_groups_of_gaussians(generator: torch.Generator) -> None:
    no_sharing = PointSampler(5, kinds=(0, 1, 2, 3, 4)).draw(200, 72, generator)
    assert no_sharing.labels is not None
    for labels, k in zip(no_sharing.labels, no_sharing.k.tolist(), strict=True):
        assert torch.bincount(labels).tolist() == [72 // k] * (k - 1) + [72 // k + 72 % k]
    sharing = PointSampler(5, k_min=5, kinds=(4, 6)).draw(200, 20, generator)
    assert sharing.labels is not None
    sizes = torch.stack([torch.bincount(labels, minlength=5) for labels in sharing.labels])
    assert sizes.min() == 1
    assert sizes.max() > 6


def test_clusters_are_separated(generator: torch.Generator) -> None:
    """For at least 99 % of the points, the nearest other point is in the same cluster."""
    episode = PointSampler(5).draw(200, 200, generator)
    gaps = torch.cdist(episode.x, episode.x) + 9 * torch.eye(200)
    nearest = gaps.argmin(-1)
    assert episode.labels is not None
    assert (episode.labels.gather(1, nearest) != episode.labels).float().mean() < 0.01


def test_clusters_of_few_points_are_gaussians(generator: torch.Generator) -> None:
    k = torch.full((400,), 5)
    # Four points per cluster
    kinds = PointSampler(5)._draw_kinds(k, points._allowed_kinds(k, 20, 5, None, None), generator)
    assert set(kinds.unique().tolist()) <= {-1, *GAUSSIANS}
    kinds = PointSampler(5)._draw_kinds(k, points._allowed_kinds(k, 100, 5, None, None), generator)
    assert set(kinds.unique().tolist()) == set(range(-1, 7))
    clusters = torch.tensor([0, *(kind.n_clusters for kind in KINDS)])[kinds + 1]
    assert (clusters.sum(1) == 5).all()


def test_the_order_of_points_is_random(generator: torch.Generator) -> None:
    episode = PointSampler(2, k_min=2).draw(2000, 20, generator)
    assert episode.labels is not None
    # In unshuffled sets, 18 of 19 pairs of consecutive points would be in the same cluster.
    agree = (episode.labels[:, 1:] == episode.labels[:, :-1]).float().mean()
    assert abs(float(agree) - PointSampler(2, k_min=2).pair_prior(20)) < 0.02


def test_the_same_seed_draws_the_same_sets() -> None:
    first, second = (PointSampler(5).draw(4, 30, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.same, second.same)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PointSampler(0), "expected 1 <= k_min <= k_max"),
        (lambda: PointSampler(3, k_min=4), "expected 1 <= k_min <= k_max"),
        (lambda: PointSampler(3, kinds=(0, 1)), "one Gaussian"),
        (lambda: PointSampler(3, kinds=(4, 9)), "kinds is .*expected indices of KINDS"),
        (lambda: PointSampler(3, unequal=1.5), "unequal is 1.5; expected a fraction"),
        (lambda: PointSampler(3, varied=-0.5), "varied is -0.5; expected a fraction"),
        (lambda: PointSampler(5).draw(1, 4, torch.Generator()), "expected at least 5 points"),
        (lambda: PointSampler(1).draw(1, 1, torch.Generator()), "expected at least 2 points"),
    ],
)
def test_impossible_sets_raise(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_noise_increases_with_the_points_per_cluster(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    noises = []

    def recorded(*inputs: Any) -> Tensor:
        noises.append(inputs[4])
        return draw_shapes(*inputs)

    monkeypatch.setattr(points, "draw_shapes", recorded)
    episode = PointSampler(20, varied=1, unequal=0).draw(200, 72, generator)
    expected = (72 / episode.k / REFERENCE_CLUSTER_SIZE).sqrt().clamp(1, MAX_NOISE)
    torch.testing.assert_close(noises[0], expected)
    assert (noises[0][episode.k >= 6] == 1).all()  # small clusters have the noise of the appendix
    assert (PointSampler(1, varied=1).draw(2, 1000, generator).k == 1).all()
    assert (noises[1] == MAX_NOISE).all()
    PointSampler(20).draw(2, 72, generator)
    assert noises[2] is None


def test_half_of_the_varied_sets_are_stretched_along_one_direction() -> None:
    square = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1]]).expand(400, 4, 2)
    all_sets = torch.ones(400, dtype=torch.bool)
    result = points._stretch_sets(square, all_sets, torch.Generator().manual_seed(0))
    torch.testing.assert_close(points._stretch_sets(square, ~all_sets, torch.Generator().manual_seed(0)), square)
    sides = result[:, 1:3] - result[:, :1]  # (b, 2, 2), the transformed sides
    long, short = torch.linalg.svdvals(sides).unbind(-1)
    torch.testing.assert_close(short, torch.ones(400), atol=1e-5, rtol=0)  # orthogonal to the direction, unchanged
    assert long.min() + 1e-5 >= 1
    assert MAX_STRETCH / 1.2 < long.max() <= MAX_STRETCH
    stretched = (long > 1 + 1e-4).float().mean()
    assert abs(stretched - STRETCHED_FRACTION) < 0.08  # 3 standard errors
    torch.testing.assert_close(result[:, 3], result[:, 1] + result[:, 2] - result[:, 0])  # a linear map


def test_the_fraction_of_varied_sets_is_respected(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []

    def recorded(*inputs: Any) -> Tensor:
        masks.append(inputs[5])
        return draw_shapes(*inputs)

    monkeypatch.setattr(points, "draw_shapes", recorded)
    # One isotropic Gaussian per set
    episode = PointSampler(1, kinds=(4,), varied=0.3, unequal=0).draw(600, 400, generator)
    long, short = torch.linalg.svdvals(episode.x - episode.x.mean(1, keepdim=True)).unbind(-1)
    varies, stretched = masks[0], long / short > 1.3
    assert abs(float(varies.float().mean()) - 0.3) < 0.06  # 3 standard errors
    assert 0.3 < stretched[varies].float().mean() < STRETCHED_FRACTION
    assert not stretched[~varies].any()
    assert PointSampler(3, varied=0.3).unequal == UNEQUAL_FRACTION
    assert PointSampler(3, varied=0.3).config()["varied"] == 0.3


def test_sets_without_variation_are_reproducible() -> None:
    result = PointSampler(5).draw(2, 72, torch.Generator().manual_seed(0)).x
    torch.testing.assert_close(result[:, 0], torch.tensor(FIRST), atol=1e-5, rtol=0)
    equal, unequal = PointSampler(5), PointSampler(5, unequal=1)
    assert equal.config() == {"k": [1, 5], "kinds": list(range(7)), "varied": False}  # as stored by earlier runs
    assert unequal.config() == {**equal.config(), "unequal": 1}


def sizes_of(sampler: PointSampler, sets: int, n: int, generator: torch.Generator) -> Tensor:
    """Return the sizes of the clusters by number, shape (b, k_max)."""
    labels = sampler.draw(sets, n, generator).labels
    assert labels is not None
    return torch.nn.functional.one_hot(labels, sampler.k_max).sum(1)


def test_some_varied_sets_have_clusters_of_unequal_size(generator: torch.Generator) -> None:
    sizes = sizes_of(PointSampler(3, k_min=3, kinds=(0, 2, 4), varied=1), 400, 90, generator)
    assert (sizes.sum(1) == 90).all()
    equal = (sizes == 30).all(1).float().mean()  # random sizes are equal with probability of about 0.001
    assert abs(float(equal) - (1 - UNEQUAL_FRACTION)) < 0.08  # 3 standard errors
    assert (sizes_of(PointSampler(3, k_min=3, kinds=(0, 2, 4), varied=1, unequal=0), 50, 90, generator) == 30).all()
    alone = sizes_of(PointSampler(2, k_min=2, kinds=(4,), unequal=1), 400, 200, generator)
    assert (alone.amin(1) <= 20).float().mean() > 0.15  # at most a tenth of the points, in many sets
    assert alone.min() == MIN_CLUSTER_POINTS


def test_curves_among_unequal_clusters_have_enough_points(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[tuple[Tensor, ...]] = []

    def recorded(*shapes: Any) -> Tensor:
        inputs.append((*shapes[:3], shapes[4]))
        return draw_shapes(*shapes)

    monkeypatch.setattr(points, "draw_shapes", recorded)
    episode = PointSampler(9, k_min=2, varied=1, unequal=1).draw(600, 150, generator)
    kind, group, role, noise = inputs[0]
    kinds_seen, cluster_sizes = set(), torch.full((600,), 150)
    for b in range(600):
        set_kinds = kind[b][kind[b] >= 0]
        n_clusters = [KINDS[i].n_clusters for i in set_kinds.tolist()]
        assert sum(n_clusters) == episode.k[b]
        for index, i in enumerate(set_kinds.tolist()):
            sizes = torch.bincount(role[b][group[b] == index], minlength=n_clusters[index])
            assert len(sizes) == n_clusters[index]
            assert sizes.min() >= max(MIN_POINTS_UNEQUAL[i], MIN_CLUSTER_POINTS)
            kinds_seen.add(i)
            if i < GAUSSIANS[0]:
                cluster_sizes[b] = min(int(cluster_sizes[b]), int(sizes.min()))
    assert kinds_seen == set(range(len(KINDS)))
    # Determined by the smallest curve
    torch.testing.assert_close(noise, (cluster_sizes / REFERENCE_CLUSTER_SIZE).sqrt().clamp(1, MAX_NOISE))


def test_unequal_clusters_are_separated_and_numbered_without_gaps(generator: torch.Generator) -> None:
    episode = PointSampler(5, unequal=1).draw(200, 200, generator)
    assert episode.labels is not None
    for labels, k in zip(episode.labels, episode.k.tolist(), strict=True):
        assert labels.unique().tolist() == list(range(k))
    nearest = (torch.cdist(episode.x, episode.x) + 9 * torch.eye(200)).argmin(-1)
    assert (episode.labels.gather(1, nearest) != episode.labels).float().mean() < 0.01


@pytest.mark.parametrize(("k_max", "n"), [(1, 2), (5, 5), (5, 7), (20, 20)])
def test_small_sets_are_supported_with_unequal_sizes(k_max: int, n: int, generator: torch.Generator) -> None:
    sizes = sizes_of(PointSampler(k_max, k_min=k_max, varied=1, unequal=1), 20, n, generator)
    assert (sizes >= n // k_max).all()
    assert (sizes.sum(1) == n).all()
