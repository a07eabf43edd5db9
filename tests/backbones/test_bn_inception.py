"""BN-Inception compared with a direct implementation, for all formats of its published weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from entourage.backbones.bn_inception import BNInception
from entourage.backbones.registry import load_backbone

BLOCKS = ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
HALVING = ("3c", "4e")


def published() -> dict[str, Tensor]:
    """Return random weights with the names of the published file and the sizes of `BNInception`."""
    generator = torch.Generator().manual_seed(0)
    own = BNInception().state_dict()
    units = [name.removesuffix(".conv.weight") for name in own if name.endswith(".conv.weight")]
    layers = ["conv1_7x7_s2", "conv2_3x3_reduce", "conv2_3x3"]
    for block in BLOCKS:
        kinds = ["1x1", "3x3_reduce", "3x3", "double_3x3_reduce", "double_3x3_1", "double_3x3_2", "pool_proj"]
        layers += [f"inception_{block}_{kind}" for kind in (kinds[1:6] if block in HALVING else kinds)]
    state = {"last_linear.weight": torch.zeros(1000, 1024)}  # the classifier, which is ignored
    for unit, layer in zip(units, layers, strict=True):
        weight = own[f"{unit}.conv.weight"]
        state[f"{layer}.weight"] = torch.randn(weight.shape, generator=generator) * (2 / weight[0].numel()) ** 0.5
        for name in (f"{layer}.bias", f"{layer}_bn.weight", f"{layer}_bn.bias", f"{layer}_bn.running_mean"):
            state[name] = 0.5 + 0.1 * torch.randn(len(weight), generator=generator)
        state[f"{layer}_bn.running_var"] = 0.5 + torch.rand(len(weight), generator=generator)
    return state


def direct_features(state: dict[str, Tensor], bgr: Tensor) -> Tensor:
    """Compute features from BGR pixels of 0 to 255 with their means subtracted."""

    def unit(x: Tensor, layer: str, stride: int = 1) -> Tensor:
        weight = state[f"{layer}.weight"]
        y = F.conv2d(x, weight, state[f"{layer}.bias"], stride, weight.shape[2] // 2)
        norm = [state[f"{layer}_bn.{name}"] for name in ("running_mean", "running_var", "weight", "bias")]
        return F.relu(F.batch_norm(y, *norm, training=False, eps=1e-5))

    x = F.max_pool2d(unit(bgr, "conv1_7x7_s2", 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(unit(unit(x, "conv2_3x3_reduce"), "conv2_3x3"), 3, 2, ceil_mode=True)
    for block in BLOCKS:
        name, stride = f"inception_{block}", 2 if block in HALVING else 1
        three = unit(unit(x, f"{name}_3x3_reduce"), f"{name}_3x3", stride)
        double = unit(unit(x, f"{name}_double_3x3_reduce"), f"{name}_double_3x3_1")
        double = unit(double, f"{name}_double_3x3_2", stride)
        if block in HALVING:
            x = torch.cat([three, double, F.max_pool2d(x, 3, 2, ceil_mode=True)], dim=1)
        else:
            pooled = F.max_pool2d(x, 3, 1, 1) if block == "5b" else F.avg_pool2d(x, 3, 1, 1)
            x = torch.cat([unit(x, f"{name}_1x1"), three, double, unit(pooled, f"{name}_pool_proj")], dim=1)
    return x.mean(dim=(2, 3))


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return published()


def test_number_of_parameters_is_as_published() -> None:
    classifier = 1024 * 1000 + 1000
    assert sum(weight.numel() for weight in BNInception().parameters()) == 11_295_240 - classifier


@pytest.mark.parametrize("edition", ["plain.pth", "rows.pt", "checkpoint.pth", "plain.safetensors"])
def test_loaded_network_equals_the_published_one(edition: str, weights: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / edition
    if edition.endswith(".safetensors"):
        save_file(weights, file)
    elif edition == "rows.pt":  # an early version stores the vectors of batch normalisations as matrices of one row
        torch.save({name: value[None] if "_bn." in name else value for name, value in weights.items()}, file)
    elif edition == "checkpoint.pth":  # a training on several GPUs prefixes the names
        torch.save({"epoch": 1, "state_dict": {f"module.{name}": value for name, value in weights.items()}}, file)
    else:
        torch.save(weights, file)
    backbone = load_backbone(f"bn-inception:{file}", "cpu")
    assert (backbone.dim, backbone.size, backbone.preprocessing.mean) == (1024, (224, 224), (128, 117, 104))
    pixels = torch.randint(0, 256, (2, 3, 70, 95), generator=torch.Generator().manual_seed(1)).float()
    rgb = backbone.preprocessing.normalize(pixels)
    bgr = pixels.flip(1) - torch.tensor([104.0, 117.0, 128.0]).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(backbone.module(rgb), direct_features(weights, bgr), rtol=1e-3, atol=1e-3)


def test_no_file_is_read_without_pretrained_weights() -> None:
    backbone = load_backbone("bn-inception:/nowhere.pth", "cpu", frozen=False, pretrained=False)
    assert backbone.name == "bn-inception"  # without the file
    assert backbone.module.training is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"conv1_7x7_s2\.weight is missing; expected the published weights of BN-Inception"),
        (
            {"conv1_7x7_s2.weight": torch.zeros(32, 6, 7, 7)},
            r"s2\.weight has shape \(32, 6, 7, 7\) instead of \(64, 3, .*; expected the published weights",
        ),
        (
            {"conv1_7x7_s2.weight": torch.full((64, 3, 7, 7), torch.nan)},
            r"s2\.weight has values that are not finite; expected the published weights of BN-Inception",
        ),
        ([1, 2], r"weights\.pth contains other objects; expected a state dict"),
        ({"model": BNInception()}, r"weights\.pth contains other objects; expected a state dict"),
        (b"", r"weights\.pth .*; expected a state dict"),
        (None, r"weights\.pth .*No such file.*; expected a state dict"),
    ],
)
def test_invalid_file_raises_a_one_line_message(content: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    with pytest.raises(ValueError, match=message) as caught:
        load_backbone(f"bn-inception:{file}", "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["bn-inception", "bn-inception:"])
def test_missing_file_name_raises(name: str) -> None:
    with pytest.raises(ValueError, match="no file of weights; expected bn-inception:FILE"):
        load_backbone(name, "cpu")
