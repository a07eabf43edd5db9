"""torchvision's detectors as they can see pages of music: not resized, not capped, with anchors as symbols are.

Needs torchvision, which nothing but the comparisons does. Its builders resize pages when they are evaluated, keep a
hundred objects and place anchors for things as large as people; what replaces that is here.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from entourage.io.files import error_reason

BASELINES = ("faster-rcnn", "retinanet", "fcos")
MAX_DETECTIONS = 3000  # detections on a page; the fullest has 1,200 symbols
N_PROPOSALS = 5000  # of the first stage of Faster R-CNN, on a page
N_CANDIDATES = 10_000  # on each map, before those that overlap are put together
N_SAMPLED = 1024  # anchors and proposals of a window that Faster R-CNN learns from; a window holds up to 500 symbols
MIN_SCORE = 0.05  # score of what is returned, as of the detector of the house
STRIDES = (4, 8, 16, 32, 64)  # of the five maps; torchvision's RetinaNet and FCOS begin with 8, where a dot is lost
# Lengths of anchors on each map, and heights for a width. Wherever a symbol lies on the grid, in the mean the best
# anchor overlaps a head, a rest or a clef by 0.6 (IoU), a dot by 0.45, a stem or a ledger line by 0.3. torchvision
# teaches the best of every symbol all the same. It rounds half a side to whole pixels: 5 is the least length with no
# empty anchor.
SIZES = ((5, 8), (12, 20), (32, 48), (72, 112), (160, 240))
RATIOS = (1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 16.0)


class Float32Output(nn.Module):
    """A part of a rival whose outcome is float32 even where the loop computes in bfloat16.

    Anchors are made in the format of the maps and boxes in that of the offsets, and bfloat16 has no number between 512
    and 516: a dot is 4 pixels wide.

    Args:
        part: is asked.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *given: Any) -> Any:
        """What the part says."""
        return _floats(self.part(*given))

    def compute_loss(self, *given: Any) -> Any:
        """The losses of a part that has some."""
        return self.part.compute_loss(*given)  # type: ignore[operator]


def make_baseline(name: str, classes: int) -> nn.Module:
    """A detector of torchvision with random weights; nothing is fetched.

    Args:
        name: one of `BASELINES`.
        classes: how many there are, the background not counted; their labels begin with 1.

    Returns:
        A module that takes images (3, h, w), ink 1 and paper 0 in each channel, and sees them in their own size.

    Raises:
        ValueError: there is no such rival, or no torchvision that works.
    """
    makers = {"faster-rcnn": _faster_rcnn, "retinanet": _retinanet, "fcos": _fcos}
    if name not in makers:
        raise ValueError(f"rival {name!r} is unknown; expected one of {', '.join(BASELINES)}")
    need_torchvision()
    common = {"weights": None, "weights_backbone": None, "num_classes": classes + 1}
    model = makers[name](common)
    model.transform = _unscaled_transform()
    model.backbone = Float32Output(model.backbone)
    baseline: nn.Module = model
    return baseline


def need_torchvision() -> None:
    """Makes sure that the rivals can be made, before something else takes its time.

    Raises:
        ValueError: torchvision is not installed, or does not fit torch.
    """
    try:
        importlib.import_module("torchvision.models.detection")
    except (ImportError, RuntimeError, OSError) as error:  # one that was built for another torch fails in its own ways
        message = f"the rivals are torchvision's; expected it to be installed, and to fit torch {torch.__version__}"
        raise ValueError(f"{message}: {error_reason(error)}") from error


def _faster_rcnn(common: dict[str, Any]) -> Any:
    from torchvision.models.detection import fasterrcnn_resnet50_fpn_v2
    from torchvision.models.detection.rpn import RPNHead

    model: Any = fasterrcnn_resnet50_fpn_v2(
        **common,
        rpn_pre_nms_top_n_test=N_CANDIDATES,
        rpn_post_nms_top_n_test=N_PROPOSALS,
        rpn_batch_size_per_image=N_SAMPLED,
        box_batch_size_per_image=N_SAMPLED,
        box_detections_per_img=MAX_DETECTIONS,
        box_score_thresh=MIN_SCORE,
    )
    # The builder gives anchors and a head of its own and takes no others; this is the same head for other anchors.
    anchors = _anchors()
    head = RPNHead(model.backbone.out_channels, anchors.num_anchors_per_location()[0], conv_depth=2)
    model.rpn.anchor_generator, model.rpn.head = anchors, Float32Output(head)
    model.roi_heads.box_predictor = Float32Output(model.roi_heads.box_predictor)
    return model


def _retinanet(common: dict[str, Any]) -> Any:
    from torchvision.models.detection import retinanet_resnet50_fpn_v2
    from torchvision.models.detection.retinanet import RetinaNetHead

    model: Any = retinanet_resnet50_fpn_v2(
        **common, topk_candidates=N_CANDIDATES, detections_per_img=MAX_DETECTIONS, score_thresh=MIN_SCORE
    )
    anchors = _anchors()  # for which the builder takes no others either
    places = anchors.num_anchors_per_location()[0]
    norm = partial(nn.GroupNorm, 32)
    head = RetinaNetHead(model.backbone.out_channels, places, common["num_classes"], norm_layer=norm)
    head.regression_head._loss_type = "giou"  # as the builder has it
    model.anchor_generator, model.head = anchors, Float32Output(head)
    model.backbone = _pyramid()
    return model


def _fcos(common: dict[str, Any]) -> Any:
    """Has a point in place of anchors; it learns of objects that hold one, every 4 pixels, so of one stem in three."""
    from torchvision.models.detection import fcos_resnet50_fpn
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    model: Any = fcos_resnet50_fpn(
        **common, topk_candidates=N_CANDIDATES, detections_per_img=MAX_DETECTIONS, score_thresh=MIN_SCORE
    )
    model.backbone = _pyramid()
    model.anchor_generator = AnchorGenerator(tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES))
    # Distances to the sides pass a ReLU. From random weights, which the builder is not made for, it soon cuts all of
    # them off, and no gradient brings them back; beginning with boxes of two cells, they are learned.
    nn.init.ones_(model.head.regression_head.bbox_reg.bias)
    model.head = Float32Output(model.head)
    return model


def _pyramid() -> Any:
    """ResNet-50 with a pyramid of maps from a quarter of the page on, as Faster R-CNN's builder has it."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    layers = [1, 2, 3, 4]  # and what is pooled from the last
    return resnet_fpn_backbone(
        backbone_name="resnet50",
        weights=None,
        norm_layer=nn.BatchNorm2d,
        trainable_layers=5,
        returned_layers=layers,
    )


def _anchors() -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    return AnchorGenerator(SIZES, (RATIOS,) * len(SIZES))


def _unscaled_transform() -> nn.Module:
    """What is done to images first: they are scaled to usual numbers and padded with paper, and no more."""
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    class UnscaledTransform(GeneralizedRCNNTransform):  # type: ignore[misc]
        def resize(
            self, image: Tensor, target: dict[str, Tensor] | None = None
        ) -> tuple[Tensor, dict[str, Tensor] | None]:
            return image, target

    # Paper is 0, and so is what fills up the last rows and columns. The sizes are not used.
    return UnscaledTransform(800, 1333, [0.0] * 3, [0.25] * 3)


def _floats(found: Any) -> Any:
    if isinstance(found, Tensor):
        return found.float()
    if isinstance(found, dict):
        return type(found)((name, _floats(value)) for name, value in found.items())
    return type(found)(_floats(value) for value in found)
