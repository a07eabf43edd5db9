"""Depthwise convolutions that are trained on a CPU in about half the time.

oneDNN, which convolves for torch on CPUs, has a fast gradient for kernels up to three columns wide and falls back to a
general one beyond, which takes longer than all the rest of a 5 x 5 layer. The gradient of a wide kernel is that of its
columns, though, and these can be found three at a time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDEST = 3  # columns of a kernel whose gradient is fast


class DepthwiseConv(nn.Conv2d):
    """One filter for each channel, as `nn.Conv2d` computes it; on a CPU in float32, wide kernels are trained faster.

    Zeros around the image that are the same on opposite sides are left to the convolution, which saves a copy.

    Attributes:
        static_padding: zeros that are not the same on opposite sides, added before; otherwise nothing.
    """

    static_padding: nn.Module

    @classmethod
    def of(cls, conv: nn.Conv2d) -> DepthwiseConv:
        """The same layer with the same weights, shared, for one that may have its zeros in `static_padding`."""
        before = getattr(conv, "static_padding", None)
        lopsided: nn.Module = nn.Identity() if before is None else before
        height, width = (int(side) for side in conv.padding)
        if isinstance(before, nn.ZeroPad2d):
            left, right, top, bottom = before.padding
            if left == right and top == bottom:
                lopsided, height, width = nn.Identity(), height + top, width + left
        kernel, stride = (conv.kernel_size[0], conv.kernel_size[1]), (conv.stride[0], conv.stride[1])
        with torch.device("meta"):  # its weights are replaced
            layer = cls(
                conv.in_channels,
                conv.out_channels,
                kernel,
                stride,
                (height, width),
                groups=conv.groups,
                bias=conv.bias is not None,
            )
        layer.weight, layer.bias = conv.weight, conv.bias
        layer.static_padding = lopsided
        return layer.train(conv.training)

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (b, c, h, w) -> (b, c, h', w')."""
        padded = self.static_padding(inputs)
        slow = self.kernel_size[1] > WIDEST and padded.device.type == "cpu" and torch.is_grad_enabled()
        plain = padded.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not (slow and plain and self.weight.requires_grad and self.bias is None):
            return super().forward(padded)
        found: Tensor = _WideDepthwise.apply(padded, self.weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return found


class _WideDepthwise(torch.autograd.Function):
    """A depthwise convolution whose kernel's gradient is found some columns at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        of_x = _gradient(gradient, x, weight, ctx.stride, ctx.padding, 0) if ctx.needs_input_grad[0] else None
        return of_x, _by_columns(gradient, x, weight, ctx.stride, ctx.padding), None, None


def _by_columns(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """The gradient of the kernel, shape (c, 1, height, width): columns see shifted parts of the image."""
    height, width = padding
    padded = F.pad(x, (width, width, height, height))  # (b, c, h + 2 height, w + 2 width)
    last = (gradient.shape[3] - 1) * stride[1]  # where the kernel stands at the end of a row
    parts = []
    for first in range(0, weight.shape[3], WIDEST):
        columns = weight[..., first : first + WIDEST]
        seen = padded[..., first : first + last + columns.shape[3]]
        parts.append(_gradient(gradient, seen, columns, stride, (0, 0), 1))
    return torch.cat(parts, dim=3)


def _gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], which: int
) -> Tensor:
    """torch's own gradient of a depthwise convolution: of the input (0) or of the kernel (1)."""
    asked = [which == 0, which == 1, False]
    groups = len(weight)
    found: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), groups, asked
    )[which]
    return found
