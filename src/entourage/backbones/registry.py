"""Backbones by name."""

import torch

from entourage.backbones.backbone import Backbone
from entourage.backbones.bn_inception import BN_INCEPTION, load_bn_inception
from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE, load_efficientnet_lite
from entourage.backbones.norm import with_steady_norms
from entourage.backbones.timm_models import TIMM_PREFIX, load_timm
from entourage.device import resolve_device

BACKBONE_NAMES = (*EFFICIENTNET_LITE, f"{BN_INCEPTION}:<file>", f"{TIMM_PREFIX}<model>")


def load_backbone(
    name: str = "efficientnet-lite1",
    device: str | torch.device = "auto",
    *,
    frozen: bool = True,
    pretrained: bool = True,
) -> Backbone:
    """Load an image network.

    Args:
        name: `efficientnet-lite0`, `-lite1` or `-lite2` (installed with this library, no download), `timm:<model>`
            for any model of timm, or `bn-inception:<file>` for BN-Inception with its published weights.
        device: where it shall run.
        frozen: rewritten to be fast where it can be; False for a network that will be trained.
        pretrained: with its ImageNet weights; False for one whose weights will be replaced.

    Returns:
        The backbone, in evaluation mode, on the device.

    Raises:
        ValueError: the name is unknown, timm is needed and missing, or the device is not there.
    """
    place = resolve_device(device)
    if name in EFFICIENTNET_LITE:
        backbone = load_efficientnet_lite(name, frozen=frozen, pretrained=pretrained)
    elif name.partition(":")[0] == BN_INCEPTION:
        backbone = load_bn_inception(name, pretrained=pretrained)
    elif name.startswith(TIMM_PREFIX) and name != TIMM_PREFIX:
        backbone = load_timm(name, pretrained=pretrained)
    else:
        raise ValueError(f"backbone {name!r} is unknown; expected one of {', '.join(BACKBONE_NAMES)}")
    if not frozen:
        with_steady_norms(backbone.module)
    backbone.module.to(place)
    return backbone
