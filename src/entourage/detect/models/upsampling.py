"""Decoders: what coarse maps know is brought back to the fine ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from entourage.detect.models.encoder import conv


def enlarge(x: Tensor, like: Tensor) -> Tensor:
    """x at the height and width of another map, between cells by bilinear interpolation."""
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class TopDown(nn.Module):
    """Each map, from the coarsest on, takes up what the coarser ones know.

    Args:
        widths: channels of the encoder's maps, finest first.
        upwards: channels of the maps that come out.

    Attributes:
        widths: `upwards`.
    """

    def __init__(self, widths: Sequence[int], upwards: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(upwards)
        self.lateral = nn.ModuleList(conv(width, up, 1) for width, up in zip(widths, upwards, strict=True))
        coarser = zip(upwards[1:], upwards[:-1], strict=True)
        self.down = nn.ModuleList(conv(below, up, 1) for below, up in coarser)
        self.smooth = nn.ModuleList(nn.Sequential(conv(up, up), nn.ReLU(inplace=True)) for up in upwards)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """As many maps as given, finest first."""
        result: list[Tensor] = []
        for number in reversed(range(len(maps))):
            x = self.lateral[number](maps[number])
            if result:
                x = x + enlarge(self.down[number](result[0]), x)  # narrowed first, where that is cheap
            result.insert(0, self.smooth[number](F.relu(x)))
        return result


class _ResidualConv(nn.Module):
    """RefineNet's residual convolution unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))  # type: ignore[no-any-return]


class _ChainedPooling(nn.Module):
    """RefineNet's chained residual pooling: context from ever larger windows of 5 x 5."""

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
    """A RefineNet block: adapt each input, fuse them at the finest, pool in chains, and convolve once more."""

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
            fused = [enlarge(layer(x), adapted[0]) for layer, x in zip(self.fuse, adapted, strict=True)]
            adapted = [sum(fused[1:], fused[0])]
        return self.output(self.pool(adapted[0]))  # type: ignore[no-any-return]


class RefineNet(nn.Module):
    """Four refining blocks (Lin et al., 2017), from the coarsest map to the finest; one map comes out.

    Args:
        widths: channels of the encoder's maps, finest first.
        filters: channels of the blocks, twice that of the coarsest.
        chained: whether poolings really form a chain.

    Attributes:
        widths: (`filters`,).
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
        """One map, of the finest one's size."""
        x: Tensor = self.blocks[0](maps[-1:])
        for block, finer in zip(list(self.blocks)[1:], reversed(maps[:-1]), strict=True):
            x = block([finer, x])
        return [x]
