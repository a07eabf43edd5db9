import pytest
from torch import nn

from entourage.backbones.registry import BACKBONE_NAMES, load_backbone


@pytest.mark.parametrize("name", ["resnet50", "", "timm:", "efficientnet-lite9"])
def test_unknown_names_raise_and_list_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"is unknown; expected one of efficientnet-lite0, .*, timm:<model>"):
        load_backbone(name, "cpu")


def test_names() -> None:
    assert BACKBONE_NAMES == (
        "efficientnet-lite0",
        "efficientnet-lite1",
        "efficientnet-lite2",
        "efficientnet-lite0-gem",
        "efficientnet-lite1-gem",
        "efficientnet-lite2-gem",
        "bn-inception:<file>",
        "timm:<model>",
        "torchvision:<model>@<file>",
        "open_clip:<model>@<file>",
        "transformers:<model>@<file>",
    )


def test_unavailable_device_raises() -> None:
    with pytest.raises(ValueError, match=r"device 'cuda:99' .*; expected 'auto', 'cpu', 'cuda'"):
        load_backbone("efficientnet-lite0", "cuda:99")


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("pretrained", [True, False])
def test_frozen_and_pretrained_options(frozen: bool, pretrained: bool) -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu", frozen=frozen, pretrained=pretrained)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in backbone.module.modules()) != frozen
    assert (backbone.weights == load_backbone("efficientnet-lite0", "cpu").weights) == pretrained
    assert not backbone.module.training
