from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from entourage.detect.models.encoder_decoder import (
    BasicBlock,
    Bottleneck,
    ResNet,
    SmallEncoder,
    conv_bn,
    fuse_conv_bn,
    make_encoder,
)
from entourage.detect.options import Encoder, NetworkOptions


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resnet18", 11_176_512), ("resnet34", 21_284_672), ("resnet50", 23_508_032), ("resnet101", 42_500_160)],
)
def test_resnets_have_the_published_number_of_parameters(name: Encoder, expected: int) -> None:
    with torch.device("meta"):
        network = ResNet(name)
    # Published networks without classifier; the first convolution has one input channel instead of three.
    assert count_parameters(network) == expected - 2 * 64 * 7 * 7


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_feature_maps_of_a_resnet(name: Encoder) -> None:
    network = ResNet(name).eval()
    with torch.inference_mode():
        maps = network(torch.rand(1, 1, 64, 96))
    assert [tuple(one.shape[1:]) for one in maps] == [
        (width, 64 // stride, 96 // stride) for width, stride in zip(network.widths, network.strides, strict=True)
    ]


def test_feature_maps_of_the_small_encoder() -> None:
    network = SmallEncoder((4, 6, 8), (1, 2, 1)).eval()
    assert network.strides == (2, 4, 8)
    with torch.inference_mode():
        maps = network(torch.rand(2, 1, 32, 48))
    assert [tuple(one.shape) for one in maps] == [(2, 4, 16, 24), (2, 6, 8, 12), (2, 8, 4, 6)]


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_whose_last_normalisation_is_zero_is_the_identity(
    block: type[BasicBlock] | type[Bottleneck],
) -> None:
    module = block(8 * block.expansion, 8).eval()
    nn.init.zeros_(module.body[-1][1].weight)  # type: ignore[index, arg-type]
    x = torch.rand(1, 8 * block.expansion, 5, 5)
    assert torch.equal(module(x), x)


def test_the_options_select_the_encoder() -> None:
    small = make_encoder(NetworkOptions(widths=(4, 4), blocks=(1, 1), upwards=(4, 4)))
    assert isinstance(small, SmallEncoder)
    assert small.widths == (4, 4)
    assert isinstance(make_encoder(NetworkOptions(encoder="resnet18")), ResNet)


def test_fusing_batch_norm_does_not_change_the_output() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(conv_bn(1, 4, 5, 2), nn.ReLU(), BasicBlock(4, 6, 2))
    network(torch.rand(4, 1, 16, 16))  # statistics that are not 0 and 1
    network.eval()
    fused = deepcopy(network)
    fuse_conv_bn(fused)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fused.modules())
    x = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(fused(x), network(x))  # up to rounding
