"""A network in two: an early part that stays as it is, and a late part that is trained.

What the early layers see (edges, textures) is of use for any photograph. Left as they are, they need to look at a view
of an image only once, and training the rest costs a fraction of the time and memory.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone
from entourage.backbones.efficientnet_lite import PooledFeatures, fold_for_inference

TRAINED_STAGES = 3  # of an EfficientNet-Lite's seven


class Stem(nn.Module):
    """The early part: normalised images (b, 3, h, w) to activations (b, c, h / 16, w / 16); never trained."""

    def __init__(self, network: nn.Module, blocks: int) -> None:
        super().__init__()
        self.network = network
        self.blocks = blocks
        self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Stem:
        """Stays in evaluation mode, whatever the network around it does."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """Activations, shape (b, c, h / 16, w / 16)."""
        net = self.network
        x: Tensor = net._swish(net._bn0(net._conv_stem(images)))  # type: ignore[operator]
        for block in net._blocks[: self.blocks]:  # type: ignore[index]
            x = block(x)
        return x


class Tail(nn.Module):
    """The late part: activations (b, c, h, w) to features (b, 1280)."""

    def __init__(self, network: nn.Module, blocks: int) -> None:
        super().__init__()
        every = network._blocks
        total = len(every)  # type: ignore[arg-type]
        self.blocks = nn.ModuleList(every[blocks:])  # type: ignore[index]
        self.conv, self.norm, self.relu = network._conv_head, network._bn1, network._swish
        # As in the whole network, deeper blocks are dropped more often while it is trained.
        rate = float(network._global_params.drop_connect_rate)  # type: ignore[union-attr,arg-type]
        self.rates = [rate * index / total for index in range(blocks, total)]

    def forward(self, activations: Tensor) -> Tensor:
        """Features, shape (b, 1280)."""
        x = activations
        for block, rate in zip(self.blocks, self.rates, strict=True):
            x = block(x, drop_connect_rate=rate)
        feature_map: Tensor = self.relu(self.norm(self.conv(x)))  # type: ignore[operator]  # (b, 1280, h / 2, w / 2)
        return feature_map.mean(dim=(2, 3))


def split_backbone(backbone: Backbone, stages: int = TRAINED_STAGES) -> tuple[Stem, Tail]:
    """The early and the late part of an EfficientNet-Lite.

    Args:
        backbone: loaded with frozen=False.
        stages: how many of its seven stages the late part has, 1 to 6; a stage is a run of blocks of the same width.

    Returns:
        A stem with weights of its own, made fast for inference, and a tail that shares the backbone's weights: what is
        trained in the tail is trained in the backbone.

    Raises:
        ValueError: the backbone is of another family or frozen, or there are not so many stages.
    """
    if not isinstance(backbone.module, PooledFeatures):
        raise ValueError(f"backbone {backbone.name!r} cannot be split; expected an EfficientNet-Lite")
    network = backbone.module.network
    if not isinstance(network._bn1, nn.BatchNorm2d):
        raise ValueError(f"backbone {backbone.name!r} was loaded frozen; expected one with frozen=False")
    cut = _first_of_last(network, stages)
    early = copy.deepcopy(network)
    early._blocks = early._blocks[:cut]  # type: ignore[index]
    fold_for_inference(early)
    stem = Stem(early, cut).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return stem, Tail(network, cut)


def _first_of_last(network: nn.Module, stages: int) -> int:
    """Position of the block with which the last so many stages begin; stages differ in their channels."""
    channels = [block._block_args.output_filters for block in network._blocks]  # type: ignore[union-attr]
    widths = sorted(set(channels))
    if not 1 <= stages < len(widths):
        raise ValueError(f"{stages} stages to train; expected 1 to {len(widths) - 1}")
    return channels.index(widths[-stages])
