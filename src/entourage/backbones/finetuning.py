"""Fine-tuning of backbones: frozen batch normalisation, and the division into a frozen stem and a trained tail.

The features of early layers (edges, textures) are suitable for all photographs. If these layers are frozen, their
activations can be cached for each view of an image, and training the remaining layers takes a fraction of the time and
memory.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from entourage.backbones.backbone import Backbone
from entourage.backbones.efficientnet_lite import PooledFeatures, fuse_conv_bn


def freeze_batch_norm(module: nn.Module) -> None:
    """Set all batch normalisation layers to evaluation mode, so that they use and keep their statistics.

    The statistics of batches with few classes or images are not representative. `module.train()` reverts the change.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()


def convert_frozen_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every `nn.BatchNorm2d` in a network by a `FrozenBatchNorm2d` of the same name and weights."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:  # subclasses may compute something else
            setattr(module, name, FrozenBatchNorm2d.from_batch_norm(child))
        else:
            convert_frozen_batch_norm(child)
    return module


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation with a faster backward pass on a GPU in evaluation mode (frozen statistics).

    In this case, torch returns the gradient of a channels-last input in another memory format, which the preceding
    convolution has to convert. Here the memory format is preserved.
    """

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm2d) -> FrozenBatchNorm2d:
        """Create a layer that shares the weights and statistics of a batch normalisation layer."""
        with torch.device("meta"):  # weights and statistics are replaced
            layer = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        layer.__dict__.update({name: dict(norm.__dict__[name]) for name in ("_parameters", "_buffers")})
        return layer.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise activations, shape (b, c, h, w), by the fixed statistics in evaluation mode."""
        fast = x.device.type == "cuda" and not self.training and torch.is_grad_enabled()
        if not (fast and self.affine and self.track_running_stats):
            return super().forward(x)
        outputs: Tensor = _FrozenBatchNorm.apply(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps
        )  # type: ignore[no-untyped-call]
        return outputs


class _FrozenBatchNorm(torch.autograd.Function):
    """Normalisation by fixed statistics, whose gradients have the memory format of the input."""

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
        sums = torch.batch_norm_backward_reduce(gradient, x, mean, inverse, weight, True, True, True)
        grad_weight, grad_bias = sums[2], sums[3]
        grad_x = None
        if ctx.needs_input_grad[0]:  # the gradient is multiplied by the scale of the forward pass
            zeros = torch.zeros_like(mean)
            grad_x = torch.native_batch_norm(gradient, weight, zeros, zeros, var, False, 0.0, ctx.eps)[0]
        return grad_x, grad_weight, grad_bias, None, None, None


TRAINED_STAGES = 3  # of the seven stages of an EfficientNet-Lite


class Stem(nn.Module):
    """Frozen early layers: normalised images (b, 3, h, w) to activations (b, c, h / 16, w / 16)."""

    def __init__(self, network: nn.Module, blocks: int) -> None:
        super().__init__()
        self.network = network
        self.blocks = blocks
        self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Stem:
        """Keep evaluation mode, even if the network that contains the stem is set to training mode."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the activations of normalised images, shape (b, c, h / 16, w / 16)."""
        net = self.network
        x: Tensor = net._swish(net._bn0(net._conv_stem(images)))  # type: ignore[operator]
        for block in net._blocks[: self.blocks]:  # type: ignore[index]
            x = block(x)
        return x


class Tail(nn.Module):
    """Trainable late layers: activations (b, c, h, w) to features (b, 1280)."""

    def __init__(self, network: nn.Module, blocks: int) -> None:
        super().__init__()
        all_blocks = network._blocks
        total = len(all_blocks)  # type: ignore[arg-type]
        self.blocks = nn.ModuleList(all_blocks[blocks:])  # type: ignore[index]
        self.conv, self.norm, self.relu = network._conv_head, network._bn1, network._swish
        # As in the complete network, deeper blocks have a higher rate of stochastic depth.
        rate = float(network._global_params.drop_connect_rate)  # type: ignore[union-attr,arg-type]
        self.rates = [rate * index / total for index in range(blocks, total)]

    def forward(self, activations: Tensor) -> Tensor:
        """Compute the features of the stem's activations, shape (b, 1280)."""
        x = activations
        for block, rate in zip(self.blocks, self.rates, strict=True):
            x = block(x, drop_connect_rate=rate)
        feature_map: Tensor = self.relu(self.norm(self.conv(x)))  # type: ignore[operator]  # (b, 1280, h / 2, w / 2)
        return feature_map.mean(dim=(2, 3))


def split_backbone(backbone: Backbone, stages: int = TRAINED_STAGES) -> tuple[Stem, Tail]:
    """Split an EfficientNet-Lite into a frozen stem and a trainable tail.

    Args:
        backbone: an EfficientNet-Lite, loaded with frozen=False.
        stages: number of its seven stages in the tail, 1 to 6; a stage is a sequence of blocks of equal width.

    Returns:
        A stem with a copy of the weights, optimised for inference, and a tail that shares the backbone's weights.

    Raises:
        ValueError: the backbone is of another family or frozen, or the number of stages is out of range.
    """
    if not isinstance(backbone.module, PooledFeatures) or backbone.module.power != 1:
        raise ValueError(f"backbone {backbone.name!r}: cannot be split; expected an EfficientNet-Lite without -gem")
    network = backbone.module.network
    if not isinstance(network._bn1, nn.BatchNorm2d):
        raise ValueError(f"backbone {backbone.name!r}: was loaded frozen; expected one with frozen=False")
    cut = _first_of_last(network, stages)
    early = copy.deepcopy(network)
    early._blocks = early._blocks[:cut]  # type: ignore[index]
    fuse_conv_bn(early)
    stem = Stem(early, cut).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return stem, Tail(network, cut)


def _first_of_last(network: nn.Module, stages: int) -> int:
    """Return the index of the first block of the last `stages` stages, which differ in their number of channels."""
    channels = [block._block_args.output_filters for block in network._blocks]  # type: ignore[union-attr]
    widths = sorted(set(channels))
    if not 1 <= stages < len(widths):
        raise ValueError(f"stages is {stages}; expected 1 to {len(widths) - 1}")
    return channels.index(widths[-stages])
