"""torchvision's detectors for pages of music: no resizing, more detections, anchors of the size of symbols.

Requires torchvision, which only the comparisons need. Its builders resize images, return a hundred objects and use
anchors for objects as large as people; this module replaces these parts.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from entourage.io.files import error_reason

BASELINES = ("faster-rcnn", "retinanet", "fcos")
MAX_DETECTIONS = 3000  # detections per page; the densest page has 1,200 symbols
N_PROPOSALS = 5000  # proposals per page of the first stage of Faster R-CNN
N_CANDIDATES = 10_000  # candidates per feature map, before non-maximum suppression
N_SAMPLED = 1024  # anchors and proposals per window in the loss of Faster R-CNN; a window has up to 500 symbols
MIN_SCORE = 0.05  # minimum score of a detection, as of the Deep Watershed Detector
STRIDES = (
    4,
    8,
    16,
    32,
    64,
)  # of the five feature maps; torchvision's RetinaNet and FCOS start at 8, too coarse for a dot
# Anchor sizes on each feature map, and ratios of height to width. Averaged over positions on the grid, the best anchor
# has an IoU of 0.6 with a notehead, a rest or a clef, 0.45 with a dot, 0.3 with a stem or a ledger line; torchvision
# assigns every symbol its best anchor regardless. It rounds half the width and height to whole pixels: 5 is the
# smallest size without empty anchors.
SIZES = ((5, 8), (12, 20), (32, 48), (72, 112), (160, 240))
RATIOS = (1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 16.0)


class Float32Output(nn.Module):
    """Wrapper that converts the output of a module to float32 under bfloat16 autocast.

    Anchors take the dtype of the feature maps and boxes that of the offsets, and bfloat16 has no number between 512 and
    516, while a dot is 4 pixels wide.

    Args:
        part: the wrapped module.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *args: Any) -> Any:
        """Return the output of the module in float32."""
        return _floats(self.part(*args))

    def compute_loss(self, *args: Any) -> Any:
        """Return the losses of a detection head."""
        return self.part.compute_loss(*args)  # type: ignore[operator]


def make_baseline(name: str, classes: int) -> nn.Module:
    """Build a torchvision detector with random weights; nothing is downloaded.

    Args:
        name: one of `BASELINES`.
        classes: number of classes without the background; labels start at 1.

    Returns:
        A module that takes images (3, h, w), ink 1 and paper 0 in each channel, without resizing.

    Raises:
        ValueError: the name is unknown, or torchvision cannot be imported.
    """
    makers = {"faster-rcnn": _faster_rcnn, "retinanet": _retinanet, "fcos": _fcos}
    if name not in makers:
        raise ValueError(f"baseline: {name!r} is unknown; expected one of {', '.join(BASELINES)}")
    need_torchvision()
    common = {"weights": None, "weights_backbone": None, "num_classes": classes + 1}
    model = makers[name](common)
    model.transform = _unscaled_transform()
    model.backbone = Float32Output(model.backbone)
    baseline: nn.Module = model
    return baseline


def need_torchvision() -> None:
    """Check that torchvision can be imported.

    Raises:
        ValueError: torchvision is missing, or was built for another version of torch.
    """
    try:
        importlib.import_module("torchvision.models.detection")
    except (ImportError, RuntimeError, OSError) as error:  # one built for another torch raises various errors
        message = f"torchvision: cannot be imported; expected a version for torch {torch.__version__}"
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
    # The builder accepts no anchors; this is its head for other anchors.
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
    anchors = _anchors()  # the builder accepts no anchors
    places = anchors.num_anchors_per_location()[0]
    norm = partial(nn.GroupNorm, 32)
    head = RetinaNetHead(model.backbone.out_channels, places, common["num_classes"], norm_layer=norm)
    head.regression_head._loss_type = "giou"  # as in the builder
    model.anchor_generator, model.head = anchors, Float32Output(head)
    model.backbone = _pyramid()
    return model


def _fcos(common: dict[str, Any]) -> Any:
    """FCOS has points every 4 pixels instead of anchors; objects that contain none, two stems of three, are skipped."""
    from torchvision.models.detection import fcos_resnet50_fpn
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    model: Any = fcos_resnet50_fpn(
        **common, topk_candidates=N_CANDIDATES, detections_per_img=MAX_DETECTIONS, score_thresh=MIN_SCORE
    )
    model.backbone = _pyramid()
    model.anchor_generator = AnchorGenerator(tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES))
    # Distances to the four edges pass a ReLU. From random weights, which the builder is not designed for, they soon all
    # become negative and get no gradient; a bias of 1 starts with boxes of two cells, which train.
    nn.init.ones_(model.head.regression_head.bbox_reg.bias)
    model.head = Float32Output(model.head)
    return model


def _pyramid() -> Any:
    """Return ResNet-50 with a feature pyramid from stride 4 on, as in the builder of Faster R-CNN."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    layers = [1, 2, 3, 4]  # and a pooled fifth one
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
    """Return the input transform: it normalises values and pads with paper, without resizing."""
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    class UnscaledTransform(GeneralizedRCNNTransform):  # type: ignore[misc]
        def resize(
            self, image: Tensor, target: dict[str, Tensor] | None = None
        ) -> tuple[Tensor, dict[str, Tensor] | None]:
            return image, target

    # Paper is 0, as is the padding. The sizes are not used.
    return UnscaledTransform(800, 1333, [0.0] * 3, [0.25] * 3)


def _floats(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.float()
    if isinstance(output, dict):
        return type(output)((name, _floats(value)) for name, value in output.items())
    return type(output)(_floats(value) for value in output)
