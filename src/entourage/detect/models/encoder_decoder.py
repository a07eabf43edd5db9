"""Encoders, which compute feature maps at increasing strides, and decoders, which merge them from coarse to fine."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from entourage.detect.options import Encoder, NetworkOptions

_RESNETS: dict[str, tuple[bool, tuple[int, int, int, int]]] = {  # whether blocks are bottlenecks; blocks per stage
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
}


def conv_bn(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Return a convolution that divides the size by the stride, followed by batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


def fuse_conv_bn(module: nn.Module) -> None:
    """Fuse batch normalisations into the preceding convolutions, in place; outputs in evaluation mode are unchanged."""
    for part in module.modules():
        if not isinstance(part, nn.Sequential) or len(part) != 2:
            continue
        first, second = part
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
            part[0] = fuse_conv_bn_eval(first.eval(), second.eval())
            part[1] = nn.Identity()


class BasicBlock(nn.Module):
    """Residual block of two 3 x 3 convolutions with a shortcut (He et al., 2016)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(inputs, width, 3, stride), nn.ReLU(inplace=True), conv_bn(width, width))
        self.shortcut = conv_bn(inputs, width, 1, stride) if stride > 1 or inputs != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output (b, width, h / stride, w / stride) of x, shape (b, inputs, h, w)."""
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)  # (b, width, h / stride, w / stride)


class Bottleneck(nn.Module):
    """Residual block of 1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut (He et al., 2016)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.body = nn.Sequential(
            conv_bn(inputs, width, 1),
            nn.ReLU(inplace=True),
            conv_bn(width, width, 3, stride),
            nn.ReLU(inplace=True),
            conv_bn(width, outputs, 1),
        )
        self.shortcut = conv_bn(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output (b, 4 width, h / stride, w / stride) of x, shape (b, inputs, h, w)."""
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)  # (b, 4 width, h / stride, w / stride)


class _Encoder(nn.Module):
    """Base class of encoders: a stem and stages, each of which returns a feature map."""

    stem: nn.Module
    stages: nn.ModuleList

    def forward(self, x: Tensor) -> list[Tensor]:
        """Compute the feature maps of x, shape (b, 1, h, w), finest first."""
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class SmallEncoder(_Encoder):
    """Residual network from stride 2 on, with few channels where the maps are large.

    Args:
        widths: channels at strides 2, 4, 8, ...
        blocks: number of residual blocks at each stride.

    Attributes:
        widths: channels of the feature maps.
        strides: strides of the feature maps.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.strides = tuple(2 ** (number + 1) for number in range(len(widths)))
        self.stem = nn.Sequential(conv_bn(1, widths[0], 5, 2), nn.ReLU(inplace=True))  # stride 2
        self.stages = nn.ModuleList()
        inputs = widths[0]
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            stage = [BasicBlock(inputs, width, 2 if number else 1)]
            self.stages.append(nn.Sequential(*stage, *(BasicBlock(width, width) for _ in range(count - 1))))
            inputs = width


class ResNet(_Encoder):
    """Residual network (He et al., 2016) for grayscale pages, without its classifier.

    Args:
        name: "resnet18" to "resnet101".

    Attributes:
        widths: channels of the feature maps.
        strides: strides of the feature maps: 4, 8, 16, 32.
    """

    def __init__(self, name: Encoder) -> None:
        super().__init__()
        bottleneck, counts = _RESNETS[name]
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if bottleneck else BasicBlock
        self.stem = nn.Sequential(conv_bn(1, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))  # stride 4
        self.stages = nn.ModuleList()
        inputs = 64
        for number, count in enumerate(counts):
            width = 64 * 2**number
            layers: list[nn.Module] = []
            for position in range(count):
                layers.append(block(inputs, width, 2 if number and not position else 1))
                inputs = width * block.expansion
            self.stages.append(nn.Sequential(*layers))
        self.widths = tuple(64 * 2**number * block.expansion for number in range(4))
        self.strides = (4, 8, 16, 32)


def make_encoder(options: NetworkOptions) -> SmallEncoder | ResNet:
    """Return the untrained encoder that the options select."""
    if options.encoder == "small":
        return SmallEncoder(options.widths, options.blocks)
    return ResNet(options.encoder)


def resize_like(x: Tensor, like: Tensor) -> Tensor:
    """Resize x to the height and width of another map by bilinear interpolation."""
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class TopDown(nn.Module):
    """Feature pyramid: each map is added to the next finer one, from the coarsest on (Lin et al., 2017).

    Args:
        widths: channels of the encoder's maps, finest first.
        upwards: channels of the decoder's maps, finest first.

    Attributes:
        widths: channels of the decoder's maps.
    """

    def __init__(self, widths: Sequence[int], upwards: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(upwards)
        self.lateral = nn.ModuleList(conv_bn(width, up, 1) for width, up in zip(widths, upwards, strict=True))
        coarser = zip(upwards[1:], upwards[:-1], strict=True)
        self.down = nn.ModuleList(conv_bn(below, up, 1) for below, up in coarser)
        self.smooth = nn.ModuleList(nn.Sequential(conv_bn(up, up), nn.ReLU(inplace=True)) for up in upwards)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Merge the maps of the encoder from coarse to fine; return one map for each of them, finest first."""
        result: list[Tensor] = []
        for number in reversed(range(len(maps))):
            x = self.lateral[number](maps[number])
            if result:
                x = x + resize_like(self.down[number](result[0]), x)  # 1 x 1 convolution at the smaller size
            result.insert(0, self.smooth[number](F.relu(x)))
        return result


class _ResidualConv(nn.Module):
    """Residual convolution unit of RefineNet: two 3 x 3 convolutions with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))  # type: ignore[no-any-return]


class _ChainedPooling(nn.Module):
    """RefineNet's chained residual pooling: context from increasing windows, by 5 x 5 max pooling."""

    def __init__(self, width: int, links: int = 2, *, chained: bool = True) -> None:
        super().__init__()
        self.chained = chained
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(links))

    def forward(self, x: Tensor) -> Tensor:
        start = F.relu(x)
        total, link = start, start
        for layer in self.convs:
            link = layer(F.max_pool2d(link if self.chained else start, 5, stride=1, padding=2))
            total = total + link
        return total


class _Refine(nn.Module):
    """RefineNet block: adapt the inputs, fuse them at the finest size, apply chained pooling and a residual unit."""

    def __init__(self, inputs: Sequence[int], width: int, *, chained: bool) -> None:
        super().__init__()
        self.adapt = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(size, width, 3, padding=1, bias=False) if size != width else nn.Identity(),
                _ResidualConv(width),
                _ResidualConv(width),
            )
            for size in inputs
        )
        self.fuse = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inputs)
        self.pool = _ChainedPooling(width, chained=chained)
        self.output = _ResidualConv(width)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        adapted = [adapt(x) for adapt, x in zip(self.adapt, maps, strict=True)]
        if len(adapted) > 1:
            fused = [resize_like(layer(x), adapted[0]) for layer, x in zip(self.fuse, adapted, strict=True)]
            adapted = [sum(fused[1:], fused[0])]
        return self.output(self.pool(adapted[0]))  # type: ignore[no-any-return]


class RefineNet(nn.Module):
    """RefineNet (Lin et al., 2017): one block per map of the encoder, from the coarsest to the finest.

    Args:
        widths: channels of the encoder's maps, finest first.
        filters: channels of the blocks; the coarsest has twice as many.
        chained: each pooling takes the output of the previous one; False: the input of the block, as in the original
            code.

    Attributes:
        widths: channels of the output, (`filters`,).
    """

    def __init__(self, widths: Sequence[int], filters: int = 256, *, chained: bool = True) -> None:
        super().__init__()
        self.widths = (filters,)
        coarsest = _Refine(widths[-1:], 2 * filters, chained=chained)
        finer = [
            _Refine((width, 2 * filters if number == 0 else filters), filters, chained=chained)
            for number, width in enumerate(reversed(widths[:-1]))
        ]
        self.blocks = nn.ModuleList([coarsest, *finer])

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Merge the maps of the encoder; return a list of one map, which has the size of the finest input."""
        x: Tensor = self.blocks[0](maps[-1:])
        for block, finer in zip(list(self.blocks)[1:], reversed(maps[:-1]), strict=True):
            x = block([finer, x])
        return [x]
