"""Loading of backbones by name, including the models of timm and other libraries if they are installed."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from entourage.backbones.backbone import Backbone, Preprocessing, digest_weights
from entourage.backbones.bn_inception import BN_INCEPTION, load_bn_inception
from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE, GEM_SUFFIX, load_efficientnet_lite
from entourage.backbones.finetuning import convert_frozen_batch_norm
from entourage.backbones.modules import LIBRARIES, feature_dim, load_library_model, read_state
from entourage.compute import resolve_device
from entourage.extras import MissingExtraError, extra_imports
from entourage.io.files import error_reason

TIMM_PREFIX = "timm:"


def load_timm(name: str, *, pretrained: bool = True) -> Backbone:
    """Load a timm model without its classifier.

    Images are preprocessed by `Preprocessing` with the values of the model's data configuration, not by timm.

    Args:
        name: "timm:" and the name of a model, such as "timm:resnet50", and after "@" the file of its weights. Without
            a file, timm loads its own, which it may download.
        pretrained: whether to load the pretrained weights; otherwise they are random.

    Returns:
        The backbone, on the CPU.

    Raises:
        ValueError: timm is missing or broken, the model is unknown, or its weights are not available.
    """
    timm = _import_timm(name)
    try:
        model, _, file = name.removeprefix(TIMM_PREFIX).partition("@")
        module: nn.Module = timm.create_model(model, pretrained=pretrained and not file, num_classes=0).eval()
        if file and pretrained:
            missing = module.load_state_dict(read_state(Path(file)), strict=False).missing_keys  # it has a classifier
            if missing:
                raise ValueError(f"{file} lacks {missing[0]}; expected the weights of {model}")
        config: Mapping[str, Any] = timm.data.resolve_model_data_config(module)
    # The types of exceptions for unknown names, missing weights and failed downloads are not documented.
    except Exception as error:
        raise ValueError(f"backbone {name!r}: timm cannot load the model: {error_reason(error)[:200]}") from error
    channels, height, width = config["input_size"]
    if channels != 3:
        raise ValueError(f"backbone {name!r}: the model takes {channels} channels; expected 3")
    interpolation = config.get("interpolation", "bicubic")
    preprocessing = Preprocessing(
        size=(height, width),
        mean=tuple(255.0 * value for value in config["mean"]),  # timm scales pixels to 0..1
        std=tuple(255.0 * value for value in config["std"]),
        crop=config.get("crop_pct", 0.875),
        interpolation="bicubic" if interpolation == "random" else interpolation,
    )
    dim = feature_dim(name, module, (height, width))
    weights = digest_weights(module.state_dict())
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Backbone(name.partition("@")[0], dim, module, preprocessing, weights)


def _import_timm(name: str) -> ModuleType:
    try:
        with extra_imports():
            import timm
            import timm.data
    except MissingExtraError:
        raise
    # timm imports torchvision, whose import fails with OSError or RuntimeError if it does not match torch.
    except Exception as error:
        expected = "expected: pip install 'entourage[timm]', with a torchvision that matches torch"
        raise ValueError(f"backbone {name!r}: cannot import timm; {expected} ({error_reason(error)[:200]})") from error
    module: ModuleType = timm
    return module


BACKBONE_NAMES = (
    *EFFICIENTNET_LITE,
    *(f"{name}{GEM_SUFFIX}" for name in EFFICIENTNET_LITE),
    f"{BN_INCEPTION}:<file>",
    f"{TIMM_PREFIX}<model>",
    *(f"{library}:<model>@<file>" for library in LIBRARIES),
)


def load_backbone(
    name: str = "efficientnet-lite1",
    device: str | torch.device = "auto",
    *,
    frozen: bool = True,
    pretrained: bool = True,
) -> Backbone:
    """Load a pretrained image encoder by name.

    Args:
        name: "efficientnet-lite0", "-lite1" or "-lite2" (installed with this library, without a download), also with
            the suffix "-gem" (generalised mean pooling, for retrieval without training),
            "timm:<model>" for a model of timm, "bn-inception:<file>" for BN-Inception with its published weights, or
            "torchvision:<model>@<file>", "open_clip:<model>@<file>" and "transformers:<model>@<folder>".
        device: device of the network.
        frozen: whether to optimise the network for inference, if possible; False if it will be trained.
        pretrained: whether to load ImageNet weights; False if they will be replaced.

    Returns:
        The backbone, in evaluation mode, on the device.

    Raises:
        ValueError: the name is unknown, timm is required and missing, or the device is not available.
    """
    resolved = resolve_device(device)
    if name.removesuffix(GEM_SUFFIX) in EFFICIENTNET_LITE:
        backbone = load_efficientnet_lite(name, frozen=frozen, pretrained=pretrained)
    elif name.partition(":")[0] == BN_INCEPTION:
        backbone = load_bn_inception(name, pretrained=pretrained)
    elif name.startswith(TIMM_PREFIX) and name != TIMM_PREFIX:
        backbone = load_timm(name, pretrained=pretrained)
    elif name.partition(":")[0] in LIBRARIES and name.partition(":")[2]:
        backbone = load_library_model(name, pretrained=pretrained)
    else:
        raise ValueError(f"backbone {name!r} is unknown; expected one of {', '.join(BACKBONE_NAMES)}")
    if not frozen:
        convert_frozen_batch_norm(backbone.module)
    backbone.module.to(resolved)
    return backbone
