from __future__ import annotations

import math

import torch

from entourage.cluster.relate import FLOOR, NEAREST, RANKS, SHARES, WIDE, relations

SQUARED = torch.cdist(*[torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))] * 2) ** 2


def test_features_are_logarithms_of_distances_in_three_units() -> None:
    pairs, items = relations(SQUARED)
    d = (SQUARED[0] + FLOOR).sqrt()
    by_rank = d.sort(-1).values[:, 1:]
    scale = by_rank[:, :NEAREST].log().mean(-1).exp()
    i, j = 2, 7
    places = [math.ceil(share * 11) - 1 for share in SHARES]
    wide = by_rank[:, places[WIDE]]
    units = torch.stack([torch.tensor(1.0), scale[i], scale[j], wide[i], wide[j]])
    expected = (d[i, j] / units).log()
    torch.testing.assert_close(pairs[0, i, j], expected)
    torch.testing.assert_close(items[0, i], by_rank[i, [min(r, 11) - 1 for r in RANKS] + places].log())


def test_relative_features_do_not_depend_on_the_unit() -> None:
    pairs, _ = relations(SQUARED)
    larger, _ = relations(SQUARED * 9)
    apart = ~torch.eye(12, dtype=torch.bool)  # an item's distance from itself is the floor
    torch.testing.assert_close(larger[:, apart, 1:], pairs[:, apart, 1:], atol=1e-3, rtol=1e-3)


def test_two_items_and_copies_are_enough() -> None:
    for squared in (torch.tensor([[[0.0, 4.0], [4.0, 0.0]]]), torch.zeros(1, 3, 3)):
        assert all(part.isfinite().all() for part in relations(squared))


def test_wide_scales_do_not_depend_on_how_many_items_a_set_is_drawn_with() -> None:
    x = torch.randn(1, 1200, 2, generator=torch.Generator().manual_seed(0))
    many, few = (relations(torch.cdist(part, part) ** 2)[1][..., len(RANKS) :].mean(1) for part in (x, x[:, :150]))
    torch.testing.assert_close(many, few, atol=0.15, rtol=0)  # of logarithms: 150 items say it within some 10 %
