"""BN-Inception (Ioffe and Szegedy, 2015), the network of chapter 4 and of many papers on retrieval.

No package contains its weights, and timm does not support it: they are read from the published file, a state dict with
the layer names of Caffe.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing, digest_weights
from entourage.backbones.modules import read_state

BN_INCEPTION = "bn-inception"
DIM = 1024


class _Branches(NamedTuple):
    """Numbers of output channels of the convolutions in an Inception block.

    Attributes:
        one: branch of a 1 x 1 convolution; 0 in blocks that halve the resolution, which have no such branch.
        three: branch of a 1 x 1 and a 3 x 3 convolution.
        double: branch of a 1 x 1 and two 3 x 3 convolutions; the two have the same number of channels.
        pool: 1 x 1 convolution after pooling; 0 in blocks that halve the resolution, which have none.
    """

    one: int
    three: tuple[int, int]
    double: tuple[int, int]
    pool: int


_BLOCKS = {
    "3a": _Branches(64, (64, 64), (64, 96), 32),
    "3b": _Branches(64, (64, 96), (64, 96), 64),
    "3c": _Branches(0, (128, 160), (64, 96), 0),
    "4a": _Branches(224, (64, 96), (96, 128), 128),
    "4b": _Branches(192, (96, 128), (96, 128), 128),
    "4c": _Branches(160, (128, 160), (128, 160), 128),
    "4d": _Branches(96, (128, 192), (160, 192), 128),
    "4e": _Branches(0, (128, 192), (192, 256), 0),
    "5a": _Branches(352, (192, 320), (160, 224), 128),
    "5b": _Branches(352, (192, 320), (192, 224), 128),
}
_MAX_POOL = "5b"  # the only block without stride that has max pooling instead of average pooling

# Names of layers in the published file.
_STEM_NAMES = {"0": "conv1_7x7_s2", "2": "conv2_3x3_reduce", "3": "conv2_3x3"}
_BRANCH_NAMES = {
    "one.0": "1x1",
    "three.0": "3x3_reduce",
    "three.1": "3x3",
    "twice.0": "double_3x3_reduce",
    "twice.1": "double_3x3_1",
    "twice.2": "double_3x3_2",
    "pool.1": "pool_proj",
}


def load_bn_inception(name: str, *, pretrained: bool = True) -> Backbone:
    """Load BN-Inception without its classifier.

    Args:
        name: "bn-inception:" and the file of its published weights, a state dict (.pth, .pt or .safetensors).
        pretrained: whether to read these weights; False uses random ones and reads no file.

    Returns:
        The backbone, on the CPU, with 1024 features.

    Raises:
        ValueError: the name contains no file, or the file cannot be read or does not contain the expected weights.
    """
    module = BNInception()
    if pretrained:
        file = name.removeprefix(BN_INCEPTION).removeprefix(":")
        if not file:
            expected = f"{BN_INCEPTION}:FILE, with the file of its published weights"
            raise ValueError(f"backbone {name!r}: no file of weights; expected {expected}")
        try:
            published = read_state(Path(file))
        except ValueError as error:
            raise ValueError(f"backbone {name!r}: {error}") from error
        _load(module, name, published)
    # The published network was trained on BGR pixels of 0 to 255.
    preprocessing = Preprocessing((224, 224), mean=(128.0, 117.0, 104.0), std=(1.0,) * 3, interpolation="bilinear")
    weights = digest_weights(module.state_dict())
    # Trained runs do not require the file, and their backbone name does not contain it.
    return Backbone(BN_INCEPTION, DIM, module.eval().to(memory_format=torch.channels_last), preprocessing, weights)  # type: ignore[call-overload]


class BNInception(nn.Module):
    """BN-Inception: RGB images (b, 3, h, w) to features (b, 1024), the mean of the last feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _Unit(3, 64, 7, stride=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            _Unit(64, 64, 1),
            _Unit(64, 192, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.blocks = nn.ModuleDict()
        channels = 192
        for name, branches in _BLOCKS.items():
            block = _Block(channels, branches, max_pool=name == _MAX_POOL)
            self.blocks[name], channels = block, block.channels

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features of images (b, 3, h, w), shape (b, 1024)."""
        x = self.stem(images)
        for block in self.blocks.values():
            x = block(x)
        features: Tensor = x.mean(dim=(2, 3))
        return features


class _Unit(nn.Module):
    """Sequence of convolution, batch normalisation and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
        self.norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        activations: Tensor = self.relu(self.norm(self.conv(x)))
        return activations


class _Block(nn.Module):
    """Inception block of up to four parallel branches: (b, c, h, w) to (b, `channels`, h', w')."""

    def __init__(self, inputs: int, branches: _Branches, *, max_pool: bool) -> None:
        super().__init__()
        one, (three_reduce, three), (double_reduce, double), pool = branches
        halves = one == 0
        stride = 2 if halves else 1
        self.channels = one + three + double + (inputs if halves else pool)
        if not halves:
            self.one = nn.Sequential(_Unit(inputs, one, 1))
        self.three = nn.Sequential(_Unit(inputs, three_reduce, 1), _Unit(three_reduce, three, 3, stride=stride))
        self.twice = nn.Sequential(
            _Unit(inputs, double_reduce, 1), _Unit(double_reduce, double, 3), _Unit(double, double, 3, stride=stride)
        )
        if halves:
            self.pool = nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True))
        else:
            pooling = nn.MaxPool2d(3, 1, 1) if max_pool else nn.AvgPool2d(3, 1, 1)
            self.pool = nn.Sequential(pooling, _Unit(inputs, pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.children()], dim=1)


def _load(module: BNInception, name: str, published: dict[str, Tensor]) -> None:
    """Load the published weights; in some versions of the file, vectors are stored as matrices of one row."""
    expected, weights = module.state_dict(), {}
    for own_name, published_name in _names(expected):
        if problem := _mismatch(published.get(published_name), expected[own_name].shape):
            raise ValueError(
                f"backbone {name!r}: {published_name} {problem}; expected the published weights of BN-Inception"
            )
        weights[own_name] = published[published_name].reshape(expected[own_name].shape)
    weights["stem.0.conv.weight"] = weights["stem.0.conv.weight"].flip(1)  # from BGR to RGB
    module.load_state_dict(weights, strict=False)  # the file lacks `num_batches_tracked`


def _mismatch(value: object, shape: torch.Size) -> str:
    """Return the problem of a published tensor as text, or "" if it matches the expected shape and is finite."""
    if not isinstance(value, Tensor):
        return "is missing"
    if value.shape != shape and (len(shape) != 1 or value.shape != (1, *shape)):
        return f"has shape {tuple(value.shape)} instead of {tuple(shape)}"
    return "" if value.isfinite().all() else "has values that are not finite"


def _names(expected: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield pairs of the name of a weight in `BNInception` and its name in the published file."""
    for name in expected:
        layer, kind, weight = name.rsplit(".", 2)
        if weight == "num_batches_tracked":
            continue
        part, _, layer_name = layer.partition(".")
        if part == "stem":
            published_name = _STEM_NAMES[layer_name]
        else:
            block, _, layer_name = layer_name.partition(".")
            published_name = f"inception_{block}_{_BRANCH_NAMES[layer_name]}"
        yield name, f"{published_name}{'_bn' if kind == 'norm' else ''}.{weight}"
