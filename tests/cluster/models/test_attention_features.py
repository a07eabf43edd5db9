from __future__ import annotations

import math

import torch

from entourage.cluster.models.attention import (
    DIRECTION_FEATURES,
    DIRECTION_NEIGHBORS,
    EPSILON,
    N_NEAREST,
    NEIGHBOR_FRACTIONS,
    NEIGHBOR_RANKS,
    WIDE_SCALE,
    direction_features,
    distance_features,
)

SQUARED = torch.cdist(*[torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))] * 2) ** 2


def test_features_are_logarithms_of_distances_in_three_units() -> None:
    pairs, items = distance_features(SQUARED)
    d = (SQUARED[0] + EPSILON).sqrt()
    by_rank = d.sort(-1).values[:, 1:]
    scale = by_rank[:, :N_NEAREST].log().mean(-1).exp()
    i, j = 2, 7
    positions = [math.ceil(fraction * 11) - 1 for fraction in NEIGHBOR_FRACTIONS]
    wide = by_rank[:, positions[WIDE_SCALE]]
    units = torch.stack([torch.tensor(1.0), scale[i], scale[j], wide[i], wide[j]])
    expected = (d[i, j] / units).log()
    torch.testing.assert_close(pairs[0, i, j], expected)
    torch.testing.assert_close(items[0, i], by_rank[i, [min(r, 11) - 1 for r in NEIGHBOR_RANKS] + positions].log())


def test_relative_features_do_not_depend_on_the_unit() -> None:
    pairs, _ = distance_features(SQUARED)
    larger, _ = distance_features(SQUARED * 9)
    apart = ~torch.eye(12, dtype=torch.bool)  # distances of items to themselves are constant
    torch.testing.assert_close(larger[:, apart, 1:], pairs[:, apart, 1:], atol=1e-3, rtol=1e-3)


def test_features_are_finite_for_two_items_and_for_duplicates() -> None:
    for squared in (torch.tensor([[[0.0, 4.0], [4.0, 0.0]]]), torch.zeros(1, 3, 3)):
        assert all(part.isfinite().all() for part in distance_features(squared))


def test_wide_scales_do_not_depend_on_the_set_size() -> None:
    x = torch.randn(1, 1200, 2, generator=torch.Generator().manual_seed(0))
    many, few = (
        distance_features(torch.cdist(part, part) ** 2)[1][..., len(NEIGHBOR_RANKS) :].mean(1)
        for part in (x, x[:, :150])
    )
    # Of logarithms: estimates from 150 items have errors of about 10 %
    torch.testing.assert_close(many, few, atol=0.15, rtol=0)


def _line(slope: tuple[float, float], at: tuple[float, float]) -> torch.Tensor:
    return torch.linspace(-1, 1, 21).unsqueeze(-1) * torch.tensor(slope) + torch.tensor(at)


def test_only_points_along_a_line_are_aligned() -> None:
    z = torch.cat([_line((1.0, 0.0), (0.0, 0.0)), _line((0.0, 1.0), (0.0, 5.0))]).unsqueeze(0)
    features = direction_features(z, torch.cdist(z, z) ** 2)[0]
    assert features.shape == (42, 42, DIRECTION_FEATURES)
    for m in range(len(DIRECTION_NEIGHBORS)):  # minus 1 / d: 0.5 along, -0.5 across
        along, back, similarity = features[..., 3 * m : 3 * m + 3].unbind(-1)
        torch.testing.assert_close(along[10, 15], torch.tensor(0.5), atol=1e-3, rtol=0)
        torch.testing.assert_close(back[10, 15], along[15, 10])
        torch.testing.assert_close(along[10, 31], torch.tensor(-0.5), atol=1e-3, rtol=0)  # straight above
        torch.testing.assert_close(along[31, 10], torch.tensor(0.5), atol=1e-3, rtol=0)  # along the second line
        torch.testing.assert_close(similarity[10, 15], torch.tensor(0.5), atol=1e-3, rtol=0)
        torch.testing.assert_close(similarity[10, 31], torch.tensor(-0.5), atol=1e-3, rtol=0)


def test_direction_features_are_invariant_to_rotation_and_equivariant_to_permutations() -> None:
    z = torch.randn(2, 30, 2, generator=torch.Generator().manual_seed(1))
    rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    features = direction_features(z, torch.cdist(z, z) ** 2)
    rotated = z @ rotation.T
    torch.testing.assert_close(
        direction_features(rotated, torch.cdist(rotated, rotated) ** 2), features, atol=1e-4, rtol=0
    )
    mixed = z[:, order]
    torch.testing.assert_close(
        direction_features(mixed, torch.cdist(mixed, mixed) ** 2), features[:, order][:, :, order], atol=1e-4, rtol=0
    )


def test_duplicates_of_one_point_have_no_direction() -> None:
    z = torch.ones(1, 4, 2)
    assert direction_features(z, torch.zeros(1, 4, 4)).abs().max() == 0
