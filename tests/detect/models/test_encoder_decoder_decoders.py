from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.detect.models.encoder_decoder import RefineNet, TopDown, resize_like


def pyramid(widths: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = [(16 // 2**n, 24 // 2**n) for n in range(len(widths))]
    return [torch.rand(1, width, *size, generator=generator) for width, size in zip(widths, sizes, strict=True)]


def test_resizing_keeps_constants_and_takes_the_size_of_the_other_map() -> None:
    resized = resize_like(torch.full((1, 2, 3, 4), 0.7), torch.zeros(1, 5, 9, 13))
    assert resized.shape == (1, 2, 9, 13)
    torch.testing.assert_close(resized, torch.full_like(resized, 0.7))


def test_top_down_keeps_sizes_and_adds_coarse_maps_to_finer_ones() -> None:
    network = TopDown((3, 4, 5), (6, 7, 8)).eval()
    maps = pyramid((3, 4, 5))
    first = network(maps)
    assert [tuple(one.shape[1:]) for one in first] == [(6, 16, 24), (7, 8, 12), (8, 4, 6)]
    other = network([maps[0], maps[1], maps[2] + 1])
    assert not torch.allclose(first[0], other[0])
    same = network([maps[0] + 1, maps[1], maps[2]])
    assert torch.equal(first[1], same[1])  # fine maps are not added to coarser ones


def test_refinenet_returns_one_map_of_the_finest_size() -> None:
    network = RefineNet((4, 8, 12, 16), filters=6)
    maps = pyramid((4, 8, 12, 16))
    (output,) = network(maps)
    assert output.shape == (1, 6, 16, 24)
    output.sum().backward()
    unused = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert all(name.startswith("blocks.0.fuse") for name in unused)  # a single input is not fused


@pytest.mark.parametrize("chained", [True, False])
def test_poolings_form_a_chain_if_the_options_ask_for_it(chained: bool) -> None:
    block = RefineNet((4, 4), filters=4, chained=chained).blocks[1].pool
    assert isinstance(block, nn.Module)
    x = torch.rand(1, 4, 9, 9)
    first, second = block.convs  # type: ignore[misc, union-attr]
    start = F.relu(x)
    once = first(F.max_pool2d(start, 5, 1, 2))
    twice = second(F.max_pool2d(once if chained else start, 5, 1, 2))
    torch.testing.assert_close(block(x), start + once + twice)
