"""Encoders: a grey page in, maps at ever coarser strides out."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from entourage.detect.network_options import Encoder, NetworkOptions

_RESNETS: dict[str, tuple[bool, tuple[int, int, int, int]]] = {  # bottlenecks or not, blocks a stage
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
}


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the size, or divides it by the stride, and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


def fold(module: nn.Module) -> None:
    """Multiply batch normalisations into the convolutions before them, in place; the outcome in evaluation stays."""
    for part in module.modules():
        if not isinstance(part, nn.Sequential) or len(part) != 2:
            continue
        first, second = part
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
            part[0] = fuse_conv_bn_eval(first.eval(), second.eval())
            part[1] = nn.Identity()


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(inputs, width, 3, stride), nn.ReLU(inplace=True), conv(width, width))
        self.shortcut = conv(inputs, width, 1, stride) if stride > 1 or inputs != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """x: (b, inputs, h, w)."""
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)  # (b, width, h / stride, w / stride)


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.body = nn.Sequential(
            conv(inputs, width, 1),
            nn.ReLU(inplace=True),
            conv(width, width, 3, stride),
            nn.ReLU(inplace=True),
            conv(width, outputs, 1),
        )
        self.shortcut = conv(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """x: (b, inputs, h, w)."""
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)  # (b, 4 width, h / stride, w / stride)


class SmallEncoder(nn.Module):
    """Residual stages from stride 2 on, thin where the map is large.

    Args:
        widths: channels at strides 2, 4, 8, ...
        blocks: residual blocks there.

    Attributes:
        widths: as given.
        strides: of the maps.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.strides = tuple(2 ** (number + 1) for number in range(len(widths)))
        self.stem = nn.Sequential(conv(1, widths[0], 5, 2), nn.ReLU(inplace=True))
        self.stages = nn.ModuleList()
        inputs = widths[0]
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            stage = [BasicBlock(inputs, width, 2 if number else 1)]
            self.stages.append(nn.Sequential(*stage, *(BasicBlock(width, width) for _ in range(count - 1))))
            inputs = width

    def forward(self, x: Tensor) -> list[Tensor]:
        """Maps of x, (b, 1, h, w), finest first."""
        x = self.stem(x)  # (b, widths[0], h / 2, w / 2)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class ResNet(nn.Module):
    """A residual network (He et al., 2016) for grey pages, without its classifier.

    Args:
        name: "resnet18" to "resnet101".

    Attributes:
        widths: channels of the maps.
        strides: of the maps: 4, 8, 16, 32.
    """

    def __init__(self, name: Encoder) -> None:
        super().__init__()
        deep, counts = _RESNETS[name]
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if deep else BasicBlock
        self.stem = nn.Sequential(conv(1, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList()
        inputs = 64
        for number, count in enumerate(counts):
            width = 64 * 2**number
            layers: list[nn.Module] = []
            for place in range(count):
                layers.append(block(inputs, width, 2 if number and not place else 1))
                inputs = width * block.expansion
            self.stages.append(nn.Sequential(*layers))
        self.widths = tuple(64 * 2**number * block.expansion for number in range(4))
        self.strides = (4, 8, 16, 32)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Maps of x, (b, 1, h, w), finest first."""
        x = self.stem(x)  # (b, 64, h / 4, w / 4)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


def make_encoder(options: NetworkOptions) -> SmallEncoder | ResNet:
    """The encoder that the options name."""
    if options.encoder == "small":
        return SmallEncoder(options.widths, options.blocks)
    return ResNet(options.encoder)
