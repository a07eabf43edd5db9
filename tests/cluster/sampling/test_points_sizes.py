from __future__ import annotations

import itertools
import math

import pytest
import torch

from entourage.cluster.sampling.points import DEGREES_OF_FREEDOM, MIN_CLUSTER_POINTS, draw_sizes, expected_unequal_pairs


def test_sizes_sum_to_n_and_have_a_minimum(generator: torch.Generator) -> None:
    k = torch.arange(1, 9).repeat(50)
    sizes, holds = draw_sizes(k, 60, 8, 0.25, generator)
    assert (sizes.sum(1) == 60).all()
    exists = torch.arange(8) < k.unsqueeze(-1)
    assert (sizes[exists] >= MIN_CLUSTER_POINTS).all()
    assert (sizes[~exists] == 0).all()
    assert sizes[exists].min() == MIN_CLUSTER_POINTS
    assert sizes[k == 8].max() > 15  # the maximum is 25
    assert abs(float(holds.float().mean()) - 0.25) < 0.07  # 3 standard errors
    few, _ = draw_sizes(torch.full((9,), 4), 11, 4, 1.0, generator)
    assert few.min() == 2  # 11 // 4
    assert (few.sum(1) == 11).all()


def test_sizes_are_exchangeable(generator: torch.Generator) -> None:
    sizes, _ = draw_sizes(torch.full((4000,), 3), 40, 3, 1.0, generator)
    error = sizes.float().std() / 4000**0.5
    assert ((sizes.float().mean(0) - 40 / 3).abs() < 4 * error).all()


def enumerated_pairs(k: int, n: int) -> float:
    """Compute the expected pairs by enumeration of all sizes, which are Dirichlet-multinomial."""
    min_points = min(MIN_CLUSTER_POINTS, n // k)
    free = n - min_points * k
    total = 0.0
    for degrees, sizes in itertools.product(DEGREES_OF_FREEDOM, itertools.product(range(free + 1), repeat=k)):
        if sum(sizes) == free:
            a = degrees / 2
            log = math.lgamma(k * a) + math.lgamma(free + 1) - math.lgamma(free + k * a)
            log += sum(math.lgamma(s + a) - math.lgamma(a) - math.lgamma(s + 1) for s in sizes)
            total += (
                math.exp(log) * sum((s + min_points) * (s + min_points - 1) for s in sizes) / len(DEGREES_OF_FREEDOM)
            )
    return total


@pytest.mark.parametrize(("k", "n"), [(1, 2), (1, 9), (2, 13), (3, 4), (3, 22)])
def test_expected_pairs_are_exact(k: int, n: int) -> None:
    assert math.isclose(expected_unequal_pairs(k, n), enumerated_pairs(k, n), rel_tol=1e-9)


def test_expected_pairs_match_drawn_sizes(generator: torch.Generator) -> None:
    sizes, _ = draw_sizes(torch.full((4000,), 4), 80, 4, 1.0, generator)
    pairs = (sizes * (sizes - 1)).sum(1).float()
    assert abs(float(pairs.mean()) - expected_unequal_pairs(4, 80)) < 4 * float(pairs.std()) / 4000**0.5
