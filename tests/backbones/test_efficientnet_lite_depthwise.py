"""Depthwise convolutions compute what torch's own do, forwards and backwards."""

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


def plainly(conv: nn.Conv2d, x: Tensor) -> Tensor:
    zeros = getattr(conv, "static_padding", None)
    return conv(x if zeros is None else zeros(x))


@pytest.mark.parametrize("kernel", [3, 4, 5, 7])
@pytest.mark.parametrize(
    ("stride", "padding", "zeros"), [(1, 2, None), (1, 0, (2, 2, 2, 2)), (2, 0, (1, 2, 1, 2)), (2, 1, None)]
)
@pytest.mark.parametrize("size", [(6, 6), (5, 8)])
def test_output_and_both_gradients_are_torchs_own(
    kernel: int, stride: int, padding: int, zeros: tuple[int, int, int, int] | None, size: tuple[int, int]
) -> None:
    conv = layer(kernel, stride, padding, zeros)
    mine = DepthwiseConv.from_conv(conv)
    assert mine.weight is conv.weight
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 8, *size, generator=generator).contiguous(memory_format=torch.channels_last).requires_grad_()
    found, expected = mine(x), plainly(conv, x)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(expected.shape, generator=generator)
    for one, other in zip(
        torch.autograd.grad(found, [x, conv.weight], upstream),
        torch.autograd.grad(expected, [x, conv.weight], upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)  # float32 sums of at most 200 terms, in another order


def test_no_gradient_that_nobody_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = depthwise._gradient
    monkeypatch.setattr(depthwise, "_gradient", lambda *given: (asked.append(given[-1]), real(*given))[1])
    mine = DepthwiseConv.from_conv(layer(5, 1, 2, None))
    mine(torch.randn(2, 8, 6, 6)).sum().backward()
    assert asked == [1, 1]  # two slabs of columns, and nothing for the image
    x = torch.randn(2, 8, 6, 6, requires_grad=True)
    mine.requires_grad_(False)
    mine(x).sum().backward()  # torch's own way
    assert asked == [1, 1]
    torch.testing.assert_close(x.grad, torch.autograd.grad(F.conv2d(x, mine.weight, None, 1, 2, 1, 8).sum(), x)[0])


def test_other_number_formats_and_no_gradients_are_torchs_business(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("only float32 with gradients is computed here")

    monkeypatch.setattr(depthwise._WideDepthwise, "apply", never)
    conv = layer(5, 1, 2, None)
    mine, x = DepthwiseConv.from_conv(conv), torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        assert torch.equal(mine(x), conv(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert mine(x).dtype == torch.bfloat16
    assert copy.deepcopy(mine).double()(x.double()).dtype == torch.float64
    narrow = layer(3, 1, 1, None)
    assert torch.equal(DepthwiseConv.from_conv(narrow)(x), narrow(x))


def test_a_gradient_can_be_differentiated_again() -> None:
    conv = layer(5, 1, 2, None)
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    seconds = []
    for one in (DepthwiseConv.from_conv(conv), conv):
        (first,) = torch.autograd.grad((one(x) ** 2).sum(), conv.weight, create_graph=True)
        seconds.append(torch.autograd.grad((first**2).sum(), x)[0])
    torch.testing.assert_close(seconds[0], seconds[1], rtol=1e-4, atol=1e-2)  # values of some thousands


def test_a_network_to_be_trained_has_them_and_keeps_its_weights_names() -> None:
    trained, frozen = (load_backbone("efficientnet-lite0", "cpu", frozen=frozen).module for frozen in (False, True))
    kinds = [type(layer) for layer in trained.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1]
    assert kinds == [DepthwiseConv] * 16
    assert "network._blocks.5._depthwise_conv.weight" in trained.state_dict()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(trained(x), frozen(x), rtol=1e-3, atol=1e-3)  # batch norms are folded in one
