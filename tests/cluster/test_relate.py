from __future__ import annotations

import torch

from entourage.cluster.relate import FLOOR, NEAREST, RANKS, relations

SQUARED = torch.cdist(*[torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))] * 2) ** 2


def test_features_are_logarithms_of_distances_in_three_units() -> None:
    pairs, items = relations(SQUARED)
    d = (SQUARED[0] + FLOOR).sqrt()
    by_rank = d.sort(-1).values[:, 1:]
    scale = by_rank[:, :NEAREST].log().mean(-1).exp()
    i, j = 2, 7
    expected = torch.stack([d[i, j], d[i, j] / scale[i], d[i, j] / scale[j]]).log()
    torch.testing.assert_close(pairs[0, i, j], expected)
    torch.testing.assert_close(items[0, i], by_rank[i, [min(r, 11) - 1 for r in RANKS]].log())


def test_relative_features_do_not_depend_on_the_unit() -> None:
    pairs, _ = relations(SQUARED)
    larger, _ = relations(SQUARED * 9)
    apart = ~torch.eye(12, dtype=torch.bool)  # an item's distance from itself is the floor
    torch.testing.assert_close(larger[:, apart, 1:], pairs[:, apart, 1:], atol=1e-3, rtol=1e-3)


def test_two_items_and_copies_are_enough() -> None:
    for squared in (torch.tensor([[[0.0, 4.0], [4.0, 0.0]]]), torch.zeros(1, 3, 3)):
        assert all(part.isfinite().all() for part in relations(squared))
