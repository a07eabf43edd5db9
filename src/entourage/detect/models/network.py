"""The network: it predicts the energy of a page everywhere, and class and box at selected cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.detect.models.encoder_decoder import RefineNet, TopDown, make_encoder
from entourage.detect.options import DetectorOptions

_CENTRE_PRIOR = 0.01  # initial energy: the prior probability of a centre (focal loss, Lin et al., 2017)


@dataclass(frozen=True)
class MapPredictions:
    """Predicted maps of b pages; class and box are computed on demand, for the cells that are read.

    Attributes:
        energy: logits, shape (b, channels, h, w); a channel is a group of classes or an energy level.
        pyramid: feature maps that class and box are computed from, finest first.
        head: computes class and box from the feature maps.
        shape: rows and columns of cells that the pyramid covers, including padding.
        options: options of the detector.
    """

    energy: Tensor
    pyramid: list[Tensor]
    head: PointHead
    shape: tuple[int, int]
    options: DetectorOptions

    def surface(self) -> Tensor:
        """Return the energy in [0, 1], shape (b, g, h, w); with energy levels, that of the most probable level."""
        if self.options.maps.energy == "sigmoid":
            return self.energy.float().sigmoid()
        return self.energy.argmax(1, keepdim=True) / (self.options.maps.levels - 1)

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Compute class logits (m, classes) and box codes (m, box_dim) of cells (m, 4): page, group, row, column."""
        logits, codes = self.head(self.pyramid, index, self.shape)
        return logits, codes


class PointHead(nn.Module):
    """Head that predicts class and box of single cells.

    The features of a cell are those of all feature maps, interpolated bilinearly at the centre of the cell. Without a
    hidden layer, this equals a 1 x 1 convolution of the enlarged feature maps, computed at the given cells only.

    Args:
        widths: channels of the feature maps.
        classes: number of classes.
        groups: number of energy channels; each has its own box codes, since objects of several groups may share a cell.
        box_dim: length of a box code.
        hidden: units of the hidden layer; 0: no hidden layer.
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
        """Compute class logits and box codes of the cells in `index`.

        Args:
            pyramid: feature maps, shape (b, c_i, h_i, w_i).
            index: cells, shape (m, 4): page, group, row, column.
            shape: rows and columns of the grid of cells.

        Returns:
            Class logits (m, classes) and box codes (m, box_dim).
        """
        features = torch.cat([sample_cells(level, index, shape) for level in pyramid], 1)  # (m, features)
        with torch.autocast(features.device.type, enabled=False):  # half precision is too coarse for coordinates
            hidden = self.hidden(features.float())
            codes = self.boxes(hidden).view(-1, self.groups, self.box_dim)
        chosen = index[:, 1, None, None].expand(-1, 1, self.box_dim)
        return self.classes(hidden), codes.gather(1, chosen).squeeze(1)


def sample_cells(level: Tensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """Sample a feature map at cells of a finer grid, by bilinear interpolation.

    Args:
        level: feature map, shape (b, c, h, w).
        index: cells, shape (m, 4): page, group, row, column.
        shape: rows and columns of the grid.

    Returns:
        Features, shape (m, c).
    """
    _, channels, height, width = level.shape
    flat = level.permute(0, 2, 3, 1).reshape(-1, channels)  # a view in channels-last memory format
    page, row, column = index[:, 0], index[:, 2], index[:, 3]
    if (height, width) == tuple(shape):
        return flat.index_select(0, (page * height + row) * width + column)
    y = ((row + 0.5) * (height / shape[0]) - 0.5).clamp(0, height - 1)
    x = ((column + 0.5) * (width / shape[1]) - 0.5).clamp(0, width - 1)
    top, left = y.long(), x.long()
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    bottom_weight, right_weight = (y - top)[:, None].to(level), (x - left)[:, None].to(level)

    def features(rows: Tensor, columns: Tensor) -> Tensor:
        return flat.index_select(0, (page * height + rows) * width + columns)  # (m, c)

    upper = torch.lerp(features(top, left), features(top, right), right_weight)
    lower = torch.lerp(features(bottom, left), features(bottom, right), right_weight)
    return torch.lerp(upper, lower, bottom_weight)


class WatershedNetwork(nn.Module):
    """Encoder, decoder and heads of the detector.

    Args:
        classes: number of classes.
        options: options of the detector.

    Attributes:
        options: options of the detector.
        multiple: height and width of pages are padded to a multiple of this, the stride of the coarsest feature map.
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
        if self.options.maps.energy == "sigmoid":  # most cells are background
            nn.init.constant_(self.energy.bias, math.log(_CENTRE_PRIOR / (1 - _CENTRE_PRIOR)))

    def forward(self, x: Tensor) -> MapPredictions:
        """Predict the maps of pages of any size, shape (b, 1, h, w); ink is 1 and paper 0."""
        height, width = x.shape[-2:]
        padded = F.pad(x, (0, -width % self.multiple, 0, -height % self.multiple))
        pyramid = self.decoder(self.encoder(padded.contiguous(memory_format=torch.channels_last)))
        stride = self.options.maps.stride
        energy = self.energy(pyramid[0])
        shape = padded.shape[-2] // stride, padded.shape[-1] // stride
        if energy.shape[-2:] != shape:  # equals interpolation before the 1 x 1 convolution
            energy = F.interpolate(energy, size=shape, mode="bilinear", align_corners=False)
        energy = energy[..., : -(-height // stride), : -(-width // stride)]
        return MapPredictions(energy, pyramid, self.head, shape, self.options)
