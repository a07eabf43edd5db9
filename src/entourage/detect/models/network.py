"""The network: a page in; its energy everywhere, class and box where they are asked for, out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.detect.models.encoder_decoder import RefineNet, TopDown, make_encoder
from entourage.detect.options import DetectorOptions

_CENTRE_PRIOR = 0.01  # share of cells that a fresh network takes for centres


@dataclass(frozen=True)
class MapPredictions:
    """What the network says of b pages.

    Attributes:
        energy: (b, channels, h, w) logits: one a group, or one a level.
        pyramid: the maps that class and box are read from, finest first.
        head: what reads them.
        shape: rows and columns of cells that the pyramid spans, padding and all.
        options: of the detector.
    """

    energy: Tensor
    pyramid: list[Tensor]
    head: PointHead
    shape: tuple[int, int]
    options: DetectorOptions

    def surface(self) -> Tensor:
        """Energy in [0, 1], (b, g, h, w); of levels, the most probable one."""
        if self.options.maps.energy == "sigmoid":
            return self.energy.float().sigmoid()
        return self.energy.argmax(1, keepdim=True) / (self.options.maps.levels - 1)

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits (m, classes) and box numbers (m, box_dim) of cells (m, 4): page, group, row, column."""
        logits, codes = self.head(self.pyramid, index, self.shape)
        return logits, codes


class PointHead(nn.Module):
    """Class and box of single cells.

    A cell's features are those of every map of the pyramid, interpolated at its middle. Without a hidden layer this is
    a 1 x 1 convolution on the enlarged map; only the cells that nobody asks for are left out.

    Args:
        widths: channels of the maps.
        classes: how many classes there are.
        groups: energy surfaces; each has its own box numbers, since two objects may share a cell.
        box_dim: numbers that describe a box.
        hidden: units of the layer between, or 0 for none.
    """

    def __init__(self, widths: Sequence[int], classes: int, groups: int, box_dim: int, hidden: int) -> None:
        super().__init__()
        self.groups, self.box_dim = groups, box_dim
        features = sum(widths)
        self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(inplace=True)) if hidden else nn.Identity()
        self.classes = nn.Linear(hidden or features, classes)
        self.boxes = nn.Linear(hidden or features, groups * box_dim)
        nn.init.normal_(self.boxes.weight, std=0.01)
        nn.init.zeros_(self.boxes.bias)

    def forward(self, pyramid: Sequence[Tensor], index: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Class logits (m, classes) and box numbers (m, box_dim) of cells (m, 4) of maps of this height and width."""
        features = torch.cat([sample_cells(level, index, shape) for level in pyramid], 1)  # (m, features)
        hidden = self.hidden(features)
        with torch.autocast(hidden.device.type, enabled=False):  # places need more digits than half precision has
            codes = self.boxes(hidden.float()).view(-1, self.groups, self.box_dim)
        chosen = index[:, 1, None, None].expand(-1, 1, self.box_dim)
        return self.classes(hidden), codes.gather(1, chosen).squeeze(1)


def sample_cells(level: Tensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """A map (b, c, h, w) in cells (m, 4) of a map of another height and width, as if enlarged to it: (m, c)."""
    _, channels, high, wide = level.shape
    flat = level.permute(0, 2, 3, 1).reshape(-1, channels)  # a view of maps whose channels are last
    page, row, column = index[:, 0], index[:, 2], index[:, 3]
    if (high, wide) == tuple(shape):
        return flat.index_select(0, (page * high + row) * wide + column)
    y = ((row + 0.5) * (high / shape[0]) - 0.5).clamp(0, high - 1)
    x = ((column + 0.5) * (wide / shape[1]) - 0.5).clamp(0, wide - 1)
    top, left = y.long(), x.long()
    below, right = (top + 1).clamp(max=high - 1), (left + 1).clamp(max=wide - 1)
    down, across = (y - top)[:, None].to(level), (x - left)[:, None].to(level)

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        return flat.index_select(0, (page * high + rows) * wide + columns)  # (m, c)

    upper = torch.lerp(at(top, left), at(top, right), across)
    lower = torch.lerp(at(below, left), at(below, right), across)
    return torch.lerp(upper, lower, down)


class WatershedNetwork(nn.Module):
    """Encoder, decoder and heads.

    Args:
        classes: how many classes there are.
        options: of the detector.

    Attributes:
        options: as given.
        multiple: pages are padded to a multiple of so many pixels, the stride of the coarsest map.
    """

    def __init__(self, classes: int, options: DetectorOptions) -> None:
        super().__init__()
        self.options = options
        network, maps = options.network, options.maps
        self.encoder = make_encoder(network)
        self.decoder: TopDown | RefineNet
        if network.decoder == "refinenet":
            self.decoder = RefineNet(self.encoder.widths, network.filters, chained=network.chained)
        else:
            upwards = (*network.upwards,)[: len(self.encoder.widths)]
            self.decoder = TopDown(self.encoder.widths, upwards)
        self.multiple = math.lcm(max(self.encoder.strides), maps.stride)
        channels = maps.levels if maps.energy == "levels" else maps.channels
        self.energy = nn.Conv2d(self.decoder.widths[0], channels, 1)
        self.head = PointHead(self.decoder.widths, classes, maps.channels, maps.box_dim, network.hidden)
        self._init_weights()

    def _init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.energy.weight, std=0.01)
        assert self.energy.bias is not None
        if self.options.maps.energy == "sigmoid":  # most cells are background, and a fresh network shall say so
            nn.init.constant_(self.energy.bias, math.log(_CENTRE_PRIOR / (1 - _CENTRE_PRIOR)))

    def forward(self, x: Tensor) -> MapPredictions:
        """What there is on pages (b, 1, h, w), ink 1 and paper 0; h and w may be anything."""
        high, wide = x.shape[-2:]
        padded = F.pad(x, (0, -wide % self.multiple, 0, -high % self.multiple))
        pyramid = self.decoder(self.encoder(padded.contiguous(memory_format=torch.channels_last)))
        stride = self.options.maps.stride
        energy = self.energy(pyramid[0])
        shape = padded.shape[-2] // stride, padded.shape[-1] // stride
        if energy.shape[-2:] != shape:  # the same as enlarging the map before the 1 x 1 convolution
            energy = F.interpolate(energy, size=shape, mode="bilinear", align_corners=False)
        energy = energy[..., : -(-high // stride), : -(-wide // stride)]
        return MapPredictions(energy, pyramid, self.head, shape, self.options)
