"""Outputs and gradients of `DepthwiseConv` compared with those of torch."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.backbones import efficientnet_lite as depthwise
from entourage.backbones.efficientnet_lite import DepthwiseConv
from entourage.backbones.registry import load_backbone


def layer(kernel: int, stride: int, padding: int, zeros: tuple[int, int, int, int] | None) -> nn.Conv2d:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(kernel)
        conv = nn.Conv2d(8, 8, kernel, stride, padding, groups=8, bias=False)
    if zeros is not None:
        conv.static_padding = nn.ZeroPad2d(zeros)
    return conv


def torch_output(conv: nn.Conv2d, x: Tensor) -> Tensor:
    zeros = getattr(conv, "static_padding", None)
    return conv(x if zeros is None else zeros(x))


@pytest.mark.parametrize("kernel", [3, 4, 5, 7])
@pytest.mark.parametrize(
    ("stride", "padding", "zeros"), [(1, 2, None), (1, 0, (2, 2, 2, 2)), (2, 0, (1, 2, 1, 2)), (2, 1, None)]
)
@pytest.mark.parametrize("size", [(6, 6), (5, 8)])
def test_output_and_gradients_equal_those_of_torch(
    kernel: int, stride: int, padding: int, zeros: tuple[int, int, int, int] | None, size: tuple[int, int]
) -> None:
    conv = layer(kernel, stride, padding, zeros)
    depthwise_conv = DepthwiseConv.from_conv(conv)
    assert depthwise_conv.weight is conv.weight
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 8, *size, generator=generator).contiguous(memory_format=torch.channels_last).requires_grad_()
    output, expected = depthwise_conv(x), torch_output(conv, x)
    torch.testing.assert_close(output, expected)
    upstream = torch.randn(expected.shape, generator=generator)
    for one, other in zip(
        torch.autograd.grad(output, [x, conv.weight], upstream),
        torch.autograd.grad(expected, [x, conv.weight], upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)  # float32 sums of at most 200 terms, in another order


def test_only_required_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    real = depthwise._gradient
    monkeypatch.setattr(depthwise, "_gradient", lambda *args: (computed.append(args[-1]), real(*args))[1])
    conv = DepthwiseConv.from_conv(layer(5, 1, 2, None))
    conv(torch.randn(2, 8, 6, 6)).sum().backward()
    assert computed == [1, 1]  # two groups of columns, and no gradient of the input
    x = torch.randn(2, 8, 6, 6, requires_grad=True)
    conv.requires_grad_(False)
    conv(x).sum().backward()  # computed by torch
    assert computed == [1, 1]
    torch.testing.assert_close(x.grad, torch.autograd.grad(F.conv2d(x, conv.weight, None, 1, 2, 1, 8).sum(), x)[0])


def test_other_dtypes_and_inference_use_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("only for float32 with gradients")

    monkeypatch.setattr(depthwise._WideDepthwise, "apply", fail)
    conv = layer(5, 1, 2, None)
    depthwise_conv, x = DepthwiseConv.from_conv(conv), torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        assert torch.equal(depthwise_conv(x), conv(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert depthwise_conv(x).dtype == torch.bfloat16
    assert copy.deepcopy(depthwise_conv).double()(x.double()).dtype == torch.float64
    narrow = layer(3, 1, 1, None)
    assert torch.equal(DepthwiseConv.from_conv(narrow)(x), narrow(x))


def test_second_derivatives_equal_those_of_torch() -> None:
    conv = layer(5, 1, 2, None)
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    seconds = []
    for one in (DepthwiseConv.from_conv(conv), conv):
        (first,) = torch.autograd.grad((one(x) ** 2).sum(), conv.weight, create_graph=True)
        seconds.append(torch.autograd.grad((first**2).sum(), x)[0])
    torch.testing.assert_close(seconds[0], seconds[1], rtol=1e-4, atol=1e-2)  # values of some thousands


def test_trainable_network_uses_them_with_unchanged_names() -> None:
    trained, frozen = (load_backbone("efficientnet-lite0", "cpu", frozen=frozen).module for frozen in (False, True))
    kinds = [type(layer) for layer in trained.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1]
    assert kinds == [DepthwiseConv] * 16
    assert "network._blocks.5._depthwise_conv.weight" in trained.state_dict()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(trained(x), frozen(x), rtol=1e-3, atol=1e-3)  # one of them is fused
