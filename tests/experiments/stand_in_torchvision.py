"""The parts of torchvision that the baselines use, for machines without it.

Builders pass on what they are given as the real ones do, so that a keyword that is unknown, or that a builder gives
itself, is a TypeError here too. The networks are a layer each.
"""

from __future__ import annotations

from collections import OrderedDict
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn


class AnchorGenerator(nn.Module):
    """Keeps sizes and ratios, and makes the anchors of a place as the real one does."""

    def __init__(self, sizes: Any, aspect_ratios: Any) -> None:
        super().__init__()
        assert len(sizes) == len(aspect_ratios)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios

    def num_anchors_per_location(self) -> list[int]:
        return [len(size) * len(ratio) for size, ratio in zip(self.sizes, self.aspect_ratios, strict=True)]

    def cells(self, level: int) -> Tensor:
        """Corners about 0, shape (n, 4)."""
        roots = torch.tensor(self.aspect_ratios[level]).sqrt()
        lengths = torch.tensor(self.sizes[level], dtype=torch.float32)
        wide, high = (lengths / roots[:, None]).flatten(), (lengths * roots[:, None]).flatten()
        return (torch.stack([-wide, -high, wide, high], 1) / 2).round()


class GeneralizedRCNNTransform(nn.Module):
    """Halves images, unless `resize` is another."""

    def __init__(self, min_size: int, max_size: int, image_mean: list[float], image_std: list[float]) -> None:
        super().__init__()
        self.image_mean, self.image_std = image_mean, image_std

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        return image[:, ::2, ::2], target


class Backbone(nn.Module):
    """Maps of a pyramid: one."""

    out_channels = 32
    layers = (2, 3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 32, 3, padding=1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return OrderedDict([("0", self.body(images))])


def resnet_fpn_backbone(
    *, backbone_name: str, weights: Any, norm_layer: Any, trainable_layers: int, returned_layers: list[int]
) -> Backbone:
    """Keeps which layers have a map; frozen norms learn nothing from random weights."""
    assert (backbone_name, weights, norm_layer, trainable_layers) == ("resnet50", None, nn.BatchNorm2d, 5)
    made = Backbone()
    made.layers = tuple(returned_layers)
    return made


class RPNHead(nn.Module):
    """Lists of a number an anchor."""

    def __init__(self, in_channels: int, num_anchors: int, conv_depth: int = 1) -> None:
        super().__init__()
        self.num_anchors, self.conv_depth = num_anchors, conv_depth
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, 1)

    def forward(self, maps: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        found = [self.cls_logits(one) for one in maps]
        return found, found


class DenseHead(nn.Module):
    """The head of RetinaNet, and of FCOS."""

    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, norm_layer: Any = None) -> None:
        super().__init__()
        self.num_anchors, self.num_classes, self.norm_layer = num_anchors, num_classes, norm_layer
        self.regression_head = _module(bbox_reg=nn.Conv2d(in_channels, 4 * num_anchors, 1))
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, 1)

    def forward(self, maps: list[Tensor]) -> dict[str, Tensor]:
        return {"cls_logits": torch.cat([self.cls_logits(one).flatten(1) for one in maps], 1)}

    def compute_loss(self, targets: Any, found: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"classification": found["cls_logits"].mean()}


def _module(**parts: Any) -> nn.Module:
    made = nn.Module()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def _faster_rcnn(
    backbone: nn.Module,
    num_classes: int,
    rpn_anchor_generator: AnchorGenerator,
    rpn_head: RPNHead,
    box_head: nn.Module,
    rpn_pre_nms_top_n_train: int = 2000,
    rpn_pre_nms_top_n_test: int = 1000,
    rpn_post_nms_top_n_train: int = 2000,
    rpn_post_nms_top_n_test: int = 1000,
    rpn_batch_size_per_image: int = 256,
    box_score_thresh: float = 0.05,
    box_detections_per_img: int = 100,
    box_batch_size_per_image: int = 512,
) -> nn.Module:
    rpn = _module(anchor_generator=rpn_anchor_generator, head=rpn_head, kept=rpn_post_nms_top_n_test)
    roi = _module(box_predictor=nn.Linear(8, num_classes), detections_per_img=box_detections_per_img)
    return _module(backbone=backbone, rpn=rpn, roi_heads=roi, transform=GeneralizedRCNNTransform(800, 1333, [], []))


def _dense(
    backbone: nn.Module,
    num_classes: int,
    anchor_generator: AnchorGenerator,
    head: DenseHead,
    score_thresh: float = 0.2,
    detections_per_img: int = 100,
    topk_candidates: int = 1000,
) -> nn.Module:
    transform = GeneralizedRCNNTransform(800, 1333, [], [])
    caps = {"score_thresh": score_thresh, "detections_per_img": detections_per_img, "topk_candidates": topk_candidates}
    return _module(backbone=backbone, anchor_generator=anchor_generator, head=head, transform=transform, **caps)


def _built(make: Any, **own: Any) -> Any:
    def build(*, weights: Any, weights_backbone: Any, num_classes: int, **kwargs: Any) -> nn.Module:
        assert weights is None
        assert weights_backbone is None  # or something is fetched
        parts = {name: part(num_classes) for name, part in own.items()}
        found: nn.Module = make(Backbone(), num_classes, **parts, **kwargs)
        return found

    return build


def modules() -> dict[str, ModuleType]:
    """The modules by name, for `sys.modules`."""
    default = AnchorGenerator(((32,),) * 5, ((1.0,),) * 5)
    contents = {
        "torchvision": {},
        "torchvision.models": {},
        "torchvision.models.detection": {
            "fasterrcnn_resnet50_fpn_v2": _built(
                _faster_rcnn,
                rpn_anchor_generator=lambda n: default,
                rpn_head=lambda n: RPNHead(32, 1, conv_depth=2),
                box_head=lambda n: nn.Identity(),
            ),
            "retinanet_resnet50_fpn_v2": _built(
                _dense, anchor_generator=lambda n: default, head=lambda n: DenseHead(32, 1, n, nn.GroupNorm)
            ),
            "fcos_resnet50_fpn": _built(
                _dense, anchor_generator=lambda n: default, head=lambda n: DenseHead(32, 1, n, nn.GroupNorm)
            ),
        },
        "torchvision.models.detection.anchor_utils": {"AnchorGenerator": AnchorGenerator},
        "torchvision.models.detection.backbone_utils": {"resnet_fpn_backbone": resnet_fpn_backbone},
        "torchvision.models.detection.rpn": {"RPNHead": RPNHead},
        "torchvision.models.detection.retinanet": {"RetinaNetHead": DenseHead},
        "torchvision.models.detection.transform": {"GeneralizedRCNNTransform": GeneralizedRCNNTransform},
    }
    made = {name: ModuleType(name) for name in contents}
    for name, values in contents.items():
        vars(made[name]).update(values)
    return made
