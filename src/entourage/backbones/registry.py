"""Backbones by name."""

import torch

from entourage.backbones.backbone import Backbone
from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE, load_efficientnet_lite
from entourage.backbones.timm_models import TIMM_PREFIX, load_timm
from entourage.data.device import resolve_device

BACKBONE_NAMES = (*EFFICIENTNET_LITE, f"{TIMM_PREFIX}<model>")


def load_backbone(name: str = "efficientnet-lite1", device: str | torch.device = "auto") -> Backbone:
    """Load a pretrained image network.

    Args:
        name: `efficientnet-lite0`, `-lite1` or `-lite2` (installed with this library, no download), or `timm:<model>`
            for any model of timm.
        device: where it shall run.

    Returns:
        The backbone, in evaluation mode, on the device.

    Raises:
        ValueError: the name is unknown, timm is needed and missing, or the device is not there.
    """
    place = resolve_device(device)
    if name in EFFICIENTNET_LITE:
        backbone = load_efficientnet_lite(name)
    elif name.startswith(TIMM_PREFIX) and name != TIMM_PREFIX:
        backbone = load_timm(name)
    else:
        raise ValueError(f"backbone {name!r} is unknown; expected one of {', '.join(BACKBONE_NAMES)}")
    backbone.module.to(place)
    return backbone
