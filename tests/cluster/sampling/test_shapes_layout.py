from __future__ import annotations

import pytest
import torch

from entourage.cluster.sampling.shapes import draw_boxes


def test_boxes_lie_in_the_unit_square_and_never_overlap(generator: torch.Generator) -> None:
    groups = torch.randint(1, 13, (300,), generator=generator)
    corner, size = draw_boxes(groups, 12, generator)
    for g, low, extent in zip(groups.tolist(), corner, size, strict=True):
        low, high = low[:g], (low + extent)[:g]
        assert low.min() >= 0
        assert high.max() <= 1 + 1e-6
        overlap = torch.minimum(high[:, None], high[None]) - torch.maximum(low[:, None], low[None])
        shared = (overlap > 1e-6).all(-1) & ~torch.eye(g, dtype=torch.bool)
        assert not shared.any()


def test_the_grid_has_g_to_one_and_a_half_g_cells_per_axis(generator: torch.Generator) -> None:
    _, size = draw_boxes(torch.full((600,), 4), 4, generator)
    sides = (1 / size.amin((1, 2))).round().long()
    assert set(sides.tolist()) == {4, 5, 6}
    assert torch.bincount(sides)[4:].min() > 150  # each a third of 600: 4.3 standard deviations below


def test_a_single_group_fills_the_unit_square(generator: torch.Generator) -> None:
    corner, size = draw_boxes(torch.ones(20, dtype=torch.long), 1, generator)
    assert (corner == 0).all()
    assert (size == 1).all()


def test_some_boxes_extend_by_one_cell_along_one_axis(generator: torch.Generator) -> None:
    _, size = draw_boxes(torch.full((300,), 3), 3, generator)
    shape = (size / size.amin((1, 2), keepdim=True)).round()
    stretched = (shape == 2).sum(-1)
    assert stretched.max() == 1
    assert shape.max() == 2
    # Half of the groups request a cell; borders and neighbours prevent some
    assert 0.15 < (stretched == 1).float().mean() < 0.5
    assert ((shape[..., 0] == 2).any() & (shape[..., 1] == 2).any()).item()


@pytest.mark.parametrize("max_groups", [3, 20])
def test_boxes_do_not_depend_on_max_groups(max_groups: int, generator: torch.Generator) -> None:
    corner, size = draw_boxes(torch.full((50,), 3), max_groups, generator)
    assert corner.shape == size.shape == (50, max_groups, 2)
    assert (1 / size[:, :3].amin((1, 2))).round().max() <= 4
