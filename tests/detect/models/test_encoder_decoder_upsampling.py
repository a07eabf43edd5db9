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


def test_enlarging_keeps_constants_and_takes_the_size_of_the_other() -> None:
    large = resize_like(torch.full((1, 2, 3, 4), 0.7), torch.zeros(1, 5, 9, 13))
    assert large.shape == (1, 2, 9, 13)
    torch.testing.assert_close(large, torch.full_like(large, 0.7))


def test_top_down_keeps_sizes_and_brings_the_coarse_to_the_fine() -> None:
    network = TopDown((3, 4, 5), (6, 7, 8)).eval()
    maps = pyramid((3, 4, 5))
    first = network(maps)
    assert [tuple(one.shape[1:]) for one in first] == [(6, 16, 24), (7, 8, 12), (8, 4, 6)]
    other = network([maps[0], maps[1], maps[2] + 1])
    assert not torch.allclose(first[0], other[0])
    same = network([maps[0] + 1, maps[1], maps[2]])
    assert torch.equal(first[1], same[1])  # and never the other way


def test_refinenet_refines_to_the_finest() -> None:
    network = RefineNet((4, 8, 12, 16), filters=6)
    maps = pyramid((4, 8, 12, 16))
    (fine,) = network(maps)
    assert fine.shape == (1, 6, 16, 24)
    fine.sum().backward()
    unused = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert all(name.startswith("blocks.0.fuse") for name in unused)  # one input has nothing to be fused with


@pytest.mark.parametrize("chained", [True, False])
def test_poolings_form_a_chain_or_do_not(chained: bool) -> None:
    block = RefineNet((4, 4), filters=4, chained=chained).blocks[1].pool
    assert isinstance(block, nn.Module)
    x = torch.rand(1, 4, 9, 9)
    first, second = block.convs  # type: ignore[misc, union-attr]
    start = F.relu(x)
    once = first(F.max_pool2d(start, 5, 1, 2))
    twice = second(F.max_pool2d(once if chained else start, 5, 1, 2))
    torch.testing.assert_close(block(x), start + once + twice)
