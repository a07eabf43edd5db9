"""Batch normalisation in networks that are trained further."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def keep_statistics(module: nn.Module) -> None:
    """Has batch normalisation go by the statistics it has and keep them, also in training: `train()` undoes it.

    Statistics of batches of few classes, or of few images, say little of what a network will be asked about.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()


def with_steady_norms(module: nn.Module) -> nn.Module:
    """Replaces every `nn.BatchNorm2d` in a network by a `SteadyNorm` with the same weights, under the same name."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:  # a subclass does something of its own
            setattr(module, name, SteadyNorm.of(child))
        else:
            with_steady_norms(child)
    return module


class SteadyNorm(nn.BatchNorm2d):
    """Batch normalisation that is trained fast on a GPU while its statistics stay as they are.

    torch computes the gradients of this case in another memory layout than that of channels last, which the convolution
    before has to undo. Here they stay in the layout they come in.
    """

    @classmethod
    def of(cls, norm: nn.BatchNorm2d) -> SteadyNorm:
        """The same layer with the same weights and statistics, shared."""
        with torch.device("meta"):  # they are replaced
            layer = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        layer.__dict__.update({name: dict(norm.__dict__[name]) for name in ("_parameters", "_buffers")})
        return layer.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (b, c, h, w), unchanged."""
        steady = x.device.type == "cuda" and not self.training and torch.is_grad_enabled()
        if not (steady and self.affine and self.track_running_stats):
            return super().forward(x)
        found: Tensor = _Steady.apply(x, self.weight, self.bias, self.running_mean, self.running_var, self.eps)  # type: ignore[no-untyped-call]
        return found


class _Steady(torch.autograd.Function):
    """Normalises by given statistics: a scale and a shift of every channel, in the memory layout of the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var)
        ctx.eps = eps
        return torch.native_batch_norm(x, weight, bias, mean, var, False, 0.0, eps)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None, None]:
        x, weight, mean, var = ctx.saved_tensors
        last = x.is_contiguous(memory_format=torch.channels_last)
        gradient = gradients[0].contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        inverse = torch.rsqrt(var + ctx.eps)
        found = torch.batch_norm_backward_reduce(gradient, x, mean, inverse, weight, True, True, True)
        of_weight, of_bias = found[2], found[3]
        of_x = None
        if ctx.needs_input_grad[0]:  # the same scale once more
            none = torch.zeros_like(mean)
            of_x = torch.native_batch_norm(gradient, weight, none, none, var, False, 0.0, ctx.eps)[0]
        return of_x, of_weight, of_bias, None, None, None
