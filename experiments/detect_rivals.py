"""torchvision's detectors, trained on the same windows for the same time, without their resizing and their caps.

Used by `experiments.detect_deepscores`; needs torchvision, which nothing else here does.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.data import resolve_device
from entourage.detect.detections import Detections
from entourage.detect.detector import on_page
from entourage.detect.learner import Batch, Draw, cut_early, make_batch
from entourage.detect.page_task import PageTask
from entourage.detect.ready import DetectOptions, make_ready
from entourage.detect.recipe import Recipe
from entourage.detect.sheets import Sheets
from entourage.detect.windows import WindowDrawer
from entourage.training import Losses, train
from entourage.training.pace import TRIAL_STEPS, steps_within

RIVALS = ("faster-rcnn", "retinanet", "fcos")
MOST = 3000  # detections on a page; the fullest has fewer symbols
_SIZES = (8, 16, 32, 64, 128)  # anchors: a quarter of the usual, as symbols are small


def make_rival(name: str, classes: int) -> nn.Module:
    """A detector of torchvision with random weights.

    Args:
        name: one of `RIVALS`.
        classes: how many there are, the background not counted.

    Raises:
        ValueError: there is no such rival, or no torchvision.
    """
    try:
        from torchvision.models import detection
        from torchvision.models.detection.anchor_utils import AnchorGenerator
    except ImportError as error:
        raise ValueError("the rivals are torchvision's; expected it to be installed") from error
    common: dict[str, Any] = {
        "weights": None,
        "weights_backbone": None,
        "num_classes": classes + 1,
        "image_mean": [0.1] * 3,  # of ink
        "image_std": [0.25] * 3,
        "_skip_resize": True,
    }
    ratios = ((0.25, 0.5, 1.0, 2.0, 4.0),) * len(_SIZES)
    if name == "faster-rcnn":
        anchors = AnchorGenerator(tuple((size,) for size in _SIZES), ratios)
        caps = dict.fromkeys(("rpn_pre_nms_top_n_test", "rpn_post_nms_top_n_test", "box_detections_per_img"), MOST)
        return detection.fasterrcnn_resnet50_fpn_v2(rpn_anchor_generator=anchors, **caps, **common)
    caps = {"detections_per_img": MOST, "topk_candidates": MOST}
    if name == "retinanet":
        sizes = tuple((size, int(size * 2 ** (1 / 3)), int(size * 2 ** (2 / 3))) for size in _SIZES)
        return detection.retinanet_resnet50_fpn_v2(anchor_generator=AnchorGenerator(sizes, ratios), **caps, **common)
    if name == "fcos":
        return detection.fcos_resnet50_fpn(**caps, **common)
    raise ValueError(f"rival {name!r} is unknown; expected one of {', '.join(RIVALS)}")


class RivalLearner(nn.Module):
    """A rival as the loop calls it: one batch in, its losses out.

    Args:
        model: torchvision's.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The rival's own losses."""
        height, width = batch.ink.shape[-2:]
        limits = batch.boxes.new_tensor([width, height, width, height])
        boxes = batch.boxes.clamp(min=0).minimum(limits)
        boxes = torch.cat([boxes[:, :2], torch.maximum(boxes[:, 2:], boxes[:, :2] + 0.2)], 1)  # none is empty
        targets = [
            {"boxes": boxes[batch.image == number], "labels": batch.labels[batch.image == number]}
            for number in range(len(batch.ink))
        ]
        losses: dict[str, Tensor] = self.model(list(batch.ink.expand(-1, 3, -1, -1)), targets)
        return losses


class RivalTask(PageTask[Draw]):
    """A rival on the same windows as the detector of the house.

    Args:
        model: is trained in place.
        sheets: the pages.
        recipe: how; windows and views are those of the detector's own training.
    """

    def __init__(self, model: nn.Module, sheets: Sheets, recipe: Recipe) -> None:
        super().__init__(RivalLearner(model), sheets, recipe, recipe.average)
        self._drawer = WindowDrawer(sheets, recipe.window)

    def load(self, item: int, rng: np.random.Generator) -> Draw:
        """Draws windows."""
        window = self.recipe.window
        draw = Draw(self._drawer.draw(self.recipe.batch, rng))
        return cut_early(draw, self.sheets.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: Draw, step: int) -> Losses:
        """The sum of the rival's losses, and each."""
        window = self.recipe.window
        parts: dict[str, Tensor] = model(
            make_batch(batch, self.sheets.pixels, window.height, window.width, self.recipe.view)
        )
        return {"loss": torch.stack(list(parts.values())).sum(), **{n: v.detach() for n, v in parts.items()}}

    def describe(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {"rival": type(_inner(self.model)).__name__, "pages": len(self.sheets)}


class RivalDetector:
    """A trained rival, whose boxes are turned back, drawn to the ink and rounded as those of the house are.

    Args:
        model: torchvision's.
        classes: names of its classes.
        device: where to compute.
    """

    def __init__(self, model: nn.Module, classes: tuple[str, ...], device: str | torch.device = "auto") -> None:
        self.device = resolve_device(device)
        self.model = model.to(self.device).eval()
        self.classes = classes

    @torch.inference_mode()
    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """What is on a page, in its pixels."""
        options = DetectOptions()
        ready = make_ready(image, options)
        if ready.image is None:
            return Detections.empty(self.classes)
        ink = 1 - torch.from_numpy(ready.image).to(self.device).float() / 255
        found = {name: value.cpu() for name, value in self.model([ink.expand(3, -1, -1)])[0].items()}
        return on_page(Detections(found["boxes"], found["labels"], found["scores"], self.classes), ready, options)


def train_rival(
    name: str, sheets: Sheets, recipe: Recipe, minutes: float, run: Path, device: str = "auto"
) -> tuple[RivalDetector, dict[str, Any]]:
    """Trains a rival for a time, and says how that went."""
    torch.manual_seed(recipe.seed)
    recipe = replace(recipe, learning_rate=3e-4, clip_norm=5.0, batch=max(1, recipe.batch // 2))
    task = RivalTask(make_rival(name, len(sheets.classes)), sheets, recipe)
    trial = RivalTask(copy.deepcopy(_inner(task.model)), sheets, recipe)
    steps = steps_within(trial, range(TRIAL_STEPS), run, minutes, device, epoch=recipe.epoch, seed=recipe.seed)
    task.recipe = replace(recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run, device=device, title=name)
    rival = RivalDetector(_inner(task.outcome()), sheets.classes, device)
    return rival, {"steps": result.steps, "seconds": result.seconds}


def _inner(learner: nn.Module) -> nn.Module:
    """The rival itself."""
    assert isinstance(learner, RivalLearner)
    return learner.model
