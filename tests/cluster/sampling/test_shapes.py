from __future__ import annotations

import pytest
import torch

from entourage.cluster.sampling import shapes
from entourage.cluster.sampling.shapes import (
    FRAME,
    INNER_RADIUS,
    KINDS,
    MIN_CENTER_DISTANCE,
    SIGMA,
    SIGMA_RANGE,
    UNIFORM_FRACTION,
    draw_shapes,
)

N = 400


def draw(kind: int, generator: torch.Generator, sets: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw sets of one group with alternating clusters: points (b, N, 2) and roles (b, N)."""
    kinds = torch.full((sets, 1), kind)
    role = (torch.arange(N) % KINDS[kind].n_clusters).expand(sets, N)
    return draw_shapes(kinds, torch.zeros(sets, N, dtype=torch.long), role, generator), role


def test_points_of_a_ring_have_one_distance_from_its_centre(generator: torch.Generator) -> None:
    points, _ = draw(0, generator)
    radius = (points - 0.5).norm(dim=-1)
    # A quarter of the square, minus the part of the frame for noise: at most 3 sigma of .02 radii on either side.
    assert (radius.mean(1) > 0.22).all()
    assert (radius.std(1) < 0.008).all()
    angle = torch.atan2(*(points - 0.5).unbind(-1))
    assert (torch.histc(angle[0], 8) > N / 16).all()  # the full circle


def test_noise_only_widens_a_ring() -> None:
    kinds, group = torch.zeros(40, 1, dtype=torch.long), torch.zeros(40, N, dtype=torch.long)
    sampled = [
        draw_shapes(kinds, group, group, torch.Generator().manual_seed(3), noise)
        for noise in (None, torch.ones(40), torch.full((40,), 2.0))
    ]
    assert torch.equal(sampled[0], sampled[1])
    width = [(points - 0.5).norm(dim=-1).std(1) for points in sampled]
    # The frame contains all points, so that a noisier ring has a slightly smaller radius.
    torch.testing.assert_close(width[2] / width[0], torch.full((40,), 2.0), atol=0.3, rtol=0)


def test_concentric_rings_share_their_centre_and_are_separated(generator: torch.Generator) -> None:
    points, role = draw(1, generator)
    radius = (points - 0.5).norm(dim=-1)
    for r, part in zip(radius, role, strict=True):
        fraction = r[part == 1].mean() / r[part == 0].mean()
        assert INNER_RADIUS[0] - 0.02 < fraction < INNER_RADIUS[1] + 0.02
        assert r[part == 1].max() < r[part == 0].min()


def test_a_moon_is_half_a_ring_in_any_direction(generator: torch.Generator) -> None:
    points, _ = draw(2, generator, sets=40)
    spans = (points.amax(1) - points.amin(1)).sort(-1).values  # (b, 2)
    torch.testing.assert_close(spans[:, 1], torch.full((40,), 0.5))
    assert spans[:, 0].min() < 0.3  # upright or lying, a moon is half as high as wide...
    assert spans[:, 0].max() > 0.42  # ...and turned by 45 degrees about as high


def test_two_moons_never_touch(generator: torch.Generator) -> None:
    points, role = draw(3, generator)
    for p, part in zip(points, role, strict=True):
        assert torch.cdist(p[part == 0], p[part == 1]).min() > 0.02


@pytest.mark.parametrize("kind", range(4))
def test_curves_fill_the_frame_and_preserve_the_aspect_ratio(kind: int, generator: torch.Generator) -> None:
    points, _ = draw(kind, generator)
    low, high = points.amin(1), points.amax(1)
    torch.testing.assert_close((high - low).amax(-1), torch.full((6,), FRAME[1] - FRAME[0]))
    torch.testing.assert_close((high + low) / 2, torch.full((6, 2), 0.5))


@pytest.mark.parametrize("kind", [4, 5, 6])
def test_gaussians_have_their_standard_deviation_and_distance(kind: int, generator: torch.Generator) -> None:
    points, role = draw(kind, generator, sets=20)
    for p, part in zip(points, role, strict=True):
        groups = [p[part == r] for r in range(KINDS[kind].n_clusters)]
        means = torch.stack([g.mean(0) for g in groups])
        spread = torch.stack([g.std(0) for g in groups])
        assert (spread - SIGMA).abs().max() < 0.4 * SIGMA  # 80 points: 5 standard errors of 8 %
        if len(means) > 1:
            gaps = torch.pdist(means)
            assert gaps.min() > MIN_CENTER_DISTANCE - 0.03  # standard error of a mean of 80 points: .0056 per axis


def test_centres_are_separated_except_in_rare_sets(generator: torch.Generator) -> None:
    centers = shapes._draw_centers(torch.full((500, 2), 6), torch.full((500, 2, 5), SIGMA), generator)
    gaps = torch.cdist(centers, centers) + 2 * torch.eye(5)
    assert (gaps.flatten(2).amin(-1) < MIN_CENTER_DISTANCE).float().mean() < 0.05


def test_groups_have_independent_angles_and_noise(generator: torch.Generator) -> None:
    group = torch.arange(2).repeat_interleave(N // 2).unsqueeze(0)
    points = draw_shapes(torch.tensor([[2, 2]]), group, torch.zeros_like(group), generator)[0]
    spans = [(p.amax(0) - p.amin(0)) for p in (points[: N // 2], points[N // 2 :])]
    assert (spans[0] - spans[1]).abs().max() > 0.02


def test_varied_gaussians_differ_in_width_and_some_are_uniform(generator: torch.Generator) -> None:
    sets, kind = 60, 4
    kinds, zero = torch.full((sets, 1), kind), torch.zeros(sets, N, dtype=torch.long)
    points = draw_shapes(kinds, zero, zero, generator, varies=torch.ones(sets, dtype=torch.bool))
    centered = (points - points.mean(1, keepdim=True)) / points.std(1, keepdim=True)
    width = points.std(1).mean(-1) / SIGMA  # (b,)
    assert SIGMA_RANGE[0] * 0.9 < width.min() < 0.65  # 800 coordinates: 4 standard errors of 2.5 %
    assert 1.3 < width.max() < SIGMA_RANGE[1] * 1.1
    even = centered.abs().amax((1, 2)) < 1.95  # a uniform square ends at 1.73, a Gaussian at about 3
    assert abs(even.float().mean() - UNIFORM_FRACTION) < 0.17  # 3 standard errors


def test_wide_gaussians_have_a_larger_distance(generator: torch.Generator) -> None:
    kinds = torch.full((200, 1), 5)
    for factor in (1.0, 1.5):
        centers = shapes._draw_centers(kinds, torch.full((200, 1, 5), factor * SIGMA), generator)
        gap = (centers[:, 0, 0] - centers[:, 0, 1]).norm(dim=-1)
        assert factor * MIN_CENTER_DISTANCE <= gap.min() < 1.3 * factor * MIN_CENTER_DISTANCE
